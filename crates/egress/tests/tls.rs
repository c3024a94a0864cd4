//! The TLS name must be the allowed host.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::pure::Seen;
use nexus_egress::{EventKind, Limits};
use nexus_policy::net::{DenyCode, MissingSni, PolicyInput};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::{World, echo, eventually, hello, input, outside_of_netns, read_all, server, tunnel};

fn upstream() -> SocketAddr {
    server("127.0.0.1:443", echo)
}

fn world(missing_sni: MissingSni) -> World {
    let limits = Limits { hello_time: Duration::from_millis(300), ..Limits::default() };
    let world = World::with(
        PolicyInput { missing_sni: Some(missing_sni), ..input(&["+web.test", "+127.0.0.1:443"]) },
        |config| {
            config.limits = limits;
        },
    );
    world.resolver.set("web.test", &[upstream_ip()]);
    world
}

fn upstream_ip() -> std::net::IpAddr {
    std::net::Ipv4Addr::LOCALHOST.into()
}

fn sent(world: &World, authority: &str, bytes: &[u8]) -> TcpStream {
    let mut client = tunnel(world.http, authority).unwrap();
    client.write_all(bytes).unwrap();
    client
}

fn comes_back(mut client: TcpStream, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(back, bytes);
}

fn is_cut(world: &World, mut client: TcpStream) {
    assert_eq!(read_all(&mut client), None, "a reset without a byte");
    eventually("the cut in the record", || world.events.has(EventKind::Cut));
    // The end of an earlier tunnel may be reported after it.
    let cut = world.events.take().into_iter().find(|event| event.event == EventKind::Cut).unwrap();
    assert_eq!((cut.code, cut.bytes_up), (DenyCode::SniMismatch, Some(0)), "nothing went up");
}

#[test]
fn the_tls_name_must_be_the_allowed_host() {
    if outside_of_netns() {
        return;
    }
    upstream();
    let world = world(MissingSni::Refuse);
    for bytes in [hello("web.test", None), hello("web.test", Some(64)), hello("WEB.test", None)] {
        comes_back(sent(&world, "web.test:443", &bytes), &bytes);
    }
    for bytes in [hello("other.test", None), hello("other.test", Some(64)), hello("a.web.test", None)] {
        world.events.take();
        let client = sent(&world, "web.test:443", &bytes);
        is_cut(&world, client);
    }
    // An address has no name in TLS, and an allowed address does not stand for every name.
    let bytes = hello("127.0.0.1", None);
    comes_back(sent(&world, "127.0.0.1:443", &bytes), &bytes);
    world.events.take();
    let client = sent(&world, "127.0.0.1:443", &hello("web.test", None));
    is_cut(&world, client);
}

/// Builds a HelloRetryRequest for the group secp384r1, which a client of rustls has and sent no share of. `session` is
/// the session of the ClientHello.
fn retry(session: &[u8]) -> Vec<u8> {
    let random = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2, 0xa2,
        0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
    ];
    let extensions = [0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0, 24];
    let body =
        [&[3, 3][..], &random, &[u8::try_from(session.len()).unwrap()], session, &[0x13, 1, 0, 0, 12], &extensions]
            .concat();
    let length = u8::try_from(body.len()).unwrap();
    [&[22, 3, 3, 0, length + 4, 2, 0, 0, length][..], &body, &[20, 3, 3, 0, 1, 1]].concat()
}

/// Reads one record.
fn record(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 5];
    stream.read_exact(&mut bytes).ok()?;
    bytes.resize(5 + usize::from(u16::from_be_bytes([bytes[3], bytes[4]])), 0);
    stream.read_exact(&mut bytes[5..]).ok()?;
    Some(bytes)
}

/// Starts a server that asks for a second hello and reports every record that it gets, and an empty one at the end.
fn retrying(answer: fn(&[u8]) -> Vec<u8>) -> Receiver<Vec<u8>> {
    let (send, records) = channel();
    server("127.0.0.1:443", move |mut stream| {
        let mut next = record(&mut stream);
        if let Some(first) = &next {
            let session = 5 + 4 + 2 + 32;
            let length = usize::from(first[session]);
            // The egress may have ended it already.
            stream.write_all(&answer(&first[session + 1..session + 1 + length])).ok();
        }
        while let Some(bytes) = next {
            send.send(bytes).unwrap();
            next = record(&mut stream);
        }
        send.send(Vec::new()).unwrap();
    });
    records
}

/// Bytes that come before a second hello; the first entry is none.
const BETWEEN: &[&[u8]] =
    &[b"", b"\x14\x03\x03\x00\x01\x01", b"\x17\x03\x03\x00\x02xy", b"\x15\x03\x03\x00\x02\x01\x00"];

#[test]
fn a_second_hello_must_name_the_same_host() {
    if outside_of_netns() {
        return;
    }
    let records = retrying(retry);
    let next = || records.recv_timeout(support::TIMEOUT).unwrap();
    let rest = || std::iter::from_fn(|| Some(next()).filter(|record| !record.is_empty())).collect::<Vec<_>>();
    let world = world(MissingSni::Refuse);
    let redirected = |bytes: &[u8]| {
        let found = support::enter::by_dns(&world, &"web.test.".parse().unwrap()).unwrap();
        let mut stream = support::enter::by_transparent(&world, SocketAddr::new(found, 443)).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let by_socks = |bytes: &[u8]| {
        let mut stream = support::enter::by_socks(&world, 3, b"web.test", 443).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let by_connect = |bytes: &[u8]| sent(&world, "web.test:443", bytes);
    let first = hello("web.test", None);
    for open in [&by_connect as &dyn Fn(&[u8]) -> TcpStream, &by_socks, &redirected] {
        for between in BETWEEN {
            for (second, passes) in [
                (hello("web.test", None), true),
                (hello("WEB.test", Some(64)), true),
                (hello("evil.test", None), false),
                (hello("evil.test", Some(64)), false),
                (hello("127.0.0.1", None), false),
                (b"\x16\x03\x03\x00\x05hello".to_vec(), false),
                (b"\x18\x03\x03\x00\x01x".to_vec(), false),
            ] {
                world.events.take();
                // All at once: it does not wait for the server's question.
                let mut client = open(&[&first[..], between, &second].concat());
                let up = if passes { [&first[..], between, &second].concat() } else { [&first[..], between].concat() };
                if passes {
                    let mut got = Vec::new();
                    while got.len() < up.len() {
                        got.extend(next());
                    }
                    assert_eq!(got, up);
                    drop(client);
                    assert_eq!(rest(), [] as [Vec<u8>; 0], "nothing else went up");
                } else {
                    assert_eq!(read_all(&mut client), None, "a reset");
                    eventually("the cut in the record", || world.events.has(EventKind::Cut));
                    let cut = world.events.take().into_iter().find(|event| event.event == EventKind::Cut).unwrap();
                    assert_eq!(cut.code, DenyCode::SniMismatch);
                    assert_eq!(cut.bytes_up, Some(up.len() as u64));
                    // The reset may throw away what the server had not read.
                    assert!(up.starts_with(&rest().concat()), "of the second hello nothing went up");
                }
            }
        }
    }
    // Two hellos in one record.
    let mut message = first[5..].to_vec();
    message.extend(&hello("evil.test", None)[5..]);
    let length = u16::try_from(message.len()).unwrap().to_be_bytes();
    world.events.take();
    is_cut(&world, sent(&world, "web.test:443", &[&[22, 3, 1], &length[..], &message].concat()));
}

#[test]
fn a_real_client_may_be_asked_for_a_second_hello() {
    if outside_of_netns() {
        return;
    }
    let records = retrying(retry);
    let world = world(MissingSni::Refuse);
    let mut stream = tunnel(world.http, "web.test:443").unwrap();
    let mut client = support::tls_client("web.test", None);
    while !client.wants_read() || client.wants_write() {
        client.write_tls(&mut stream).unwrap();
    }
    while !client.wants_write() {
        client.read_tls(&mut stream).unwrap();
        client.process_new_packets().unwrap();
    }
    while client.wants_write() {
        client.write_tls(&mut stream).unwrap();
    }
    for wanted in [22, 20, 22] {
        let record = records.recv_timeout(support::TIMEOUT).unwrap();
        assert_eq!(record[0], wanted);
        let seen = nexus_egress::pure::read_hello(&record);
        assert_eq!(seen, if wanted == 22 { Seen::Sni(b"web.test".to_vec()) } else { Seen::NotTls });
    }
}

/// After TLS 1.2's ChangeCipherSpec the next record is encrypted, and its bytes may look like anything.
#[test]
fn an_encrypted_record_is_not_taken_for_a_hello() {
    if outside_of_netns() {
        return;
    }
    let hello_12 = |_: &[u8]| [&[22, 3, 3, 0, 42, 2, 0, 0, 38, 3, 3][..], &[7; 36]].concat();
    let records = retrying(hello_12);
    let world = world(MissingSni::Refuse);
    let first = hello("web.test", None);
    let rest = [&b"\x14\x03\x03\x00\x01\x01"[..], b"\x16\x03\x03\x00\x08\x01\x00\x01\x00abcd"];
    let _client = sent(&world, "web.test:443", &[&first[..], rest[0], rest[1]].concat());
    for wanted in [&first[..], rest[0], rest[1]] {
        assert_eq!(records.recv_timeout(support::TIMEOUT).unwrap(), wanted);
    }
}

#[test]
fn a_missing_name_follows_the_setting() {
    if outside_of_netns() {
        return;
    }
    upstream();
    let unnamed = hello("127.0.0.1", None);
    let (strict, lax) = (world(MissingSni::Refuse), world(MissingSni::Allow));
    for bytes in [unnamed.as_slice(), b"SSH-2.0-x\r\n", b"\x80\x2e\x01\x03\x01"] {
        strict.events.take();
        let client = sent(&strict, "web.test:443", bytes);
        is_cut(&strict, client);
        comes_back(sent(&lax, "web.test:443", bytes), bytes);
    }
    // A hello that never ends, and silence.
    for bytes in [&hello("web.test", None)[..50], b""] {
        strict.events.take();
        let client = sent(&strict, "web.test:443", bytes);
        is_cut(&strict, client);
    }
}

#[test]
fn a_hello_that_cannot_be_read_is_refused_whatever_the_setting() {
    if outside_of_netns() {
        return;
    }
    upstream();
    let lax = world(MissingSni::Allow);
    let late = hello("denied.test", None);
    let long = [&[22, 3, 1, 0x40, 0, 1, 0, 0x44, 0][..], &vec![0; 20_000]].concat();
    let skipped = [&b"\x16\x03\x01\x00\x04\x02"[..], b"\x15\x03\x01\x00\x02\x01\x00", b"\x14\x03\x01\x00\x01\x01"];
    for bytes in [&late[..1], &late[..50], &long, b"\x16\x03\x01\x00\x00"].into_iter().chain(skipped) {
        lax.events.take();
        let mut client = sent(&lax, "web.test:443", bytes);
        assert_eq!(read_all(&mut client), None, "a reset without a byte");
        eventually("the cut in the record", || lax.events.has(EventKind::Cut));
        let cut = lax.events.take().into_iter().find(|event| event.event == EventKind::Cut).unwrap();
        assert!(cut.bytes_up == Some(0) && cut.explanation.unwrap().contains("ClientHello"));
    }
}

#[test]
fn a_server_that_speaks_first_is_read_before_the_client_speaks() {
    if outside_of_netns() {
        return;
    }
    for port in [443, 2525] {
        server(("127.0.0.1", port), |mut stream| {
            stream.write_all(b"220 hi\r\n").unwrap();
            read_all(&mut stream);
        });
    }
    let world = World::of(PolicyInput { missing_sni: Some(MissingSni::Allow), ..input(&["+web.test:443,2525"]) });
    world.resolver.set("web.test", &[upstream_ip()]);
    for port in [443, 2525] {
        let mut client = tunnel(world.http, &format!("web.test:{port}")).unwrap();
        let mut greeting = [0; 8];
        client.read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"220 hi\r\n");
    }
}

#[test]
fn a_rule_without_tls_lets_ssh_through_on_443() {
    if outside_of_netns() {
        return;
    }
    let at = server("127.0.0.1:443", |mut stream| {
        stream.write_all(b"SSH-2.0-server\r\n").unwrap();
        echo(stream);
    });
    let with = |rule: &str| {
        let world = World::with(input(&["+web.test", rule]), |_| {});
        world.resolver.set("web.test", &[at.ip()]);
        world
    };
    let world = with("+web.test:443/tcp");
    let mut client = tunnel(world.http, "web.test:443").unwrap();
    let mut greeting = [0; 16];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"SSH-2.0-server\r\n");
    client.write_all(b"SSH-2.0-client\r\n").unwrap();
    comes_back(client, b"SSH-2.0-client\r\n");
    let world = with("+other.test:443/tcp");
    let mut client = tunnel(world.http, "web.test:443").unwrap();
    client.write_all(b"SSH-2.0-client\r\n").unwrap();
    let flag = |one: &nexus_egress::Denied| one.allow_with.as_deref() == Some("--allow-private web.test:443/tcp");
    eventually("the flag in the summary", || world.egress().summary().denied.iter().any(flag));
}
