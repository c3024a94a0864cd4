//! The TLS name must be the allowed host.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, Limits};
use nexus_policy::net::{DenyCode, MissingSni, PolicyInput};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
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
    // The end of an earlier tunnel may be told after it.
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

#[test]
fn a_missing_name_follows_the_setting() {
    if outside_of_netns() {
        return;
    }
    upstream();
    let unnamed = hello("127.0.0.1", None);
    let (strict, lax) = (world(MissingSni::Refuse), world(MissingSni::Allow));
    for bytes in [unnamed.as_slice(), b"SSH-2.0-x\r\n", b"\x16\x03\x01\x00\x00", b"\x80\x2e\x01\x03\x01"] {
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
fn a_server_that_speaks_first_is_heard_before_the_client_speaks() {
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
