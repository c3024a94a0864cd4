//! Networks in which a connection may name no host (an open one, or `missing_sni = "allow"`): a connection that names
//! another host than the allowed one is refused however oddly or late it begins.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{Event, EventKind, Limits};
use nexus_model::capability::NetMode;
use nexus_policy::net::{MissingSni, PolicyInput};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::{World, eventually, hello, input, outside_of_netns, server, tunnel};

const HELLO_TIME: Duration = Duration::from_millis(100);

/// Creates both kinds of such a network: an allowlist by the operator's setting, and an open one with a denied name.
fn worlds() -> [World; 2] {
    let inputs = [
        PolicyInput { missing_sni: Some(MissingSni::Allow), ..input(&["+web.test:80,443"]) },
        PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&["+web.test:80,443", "-denied.test"]) },
    ];
    inputs.map(|input| {
        World::with(input, |config| {
            config.limits = Limits { hello_time: HELLO_TIME, ..Limits::default() };
            let resolver = nexus_egress::Scripted::default();
            resolver.set("web.test", &[IpAddr::V4(Ipv4Addr::LOCALHOST)]);
            resolver.set("denied.test", &[IpAddr::V4(Ipv4Addr::new(93, 184, 216, 35))]);
            config.resolver = std::sync::Arc::new(resolver);
        })
    })
}

/// Starts a server on `port` that echoes, and reports each piece that it got.
fn listening(port: u16) -> Receiver<Vec<u8>> {
    let (send, got) = channel();
    server(("127.0.0.1", port), move |mut stream: TcpStream| {
        let mut bytes = vec![0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            send.send(bytes[..count].to_vec()).unwrap();
            stream.write_all(&bytes[..count]).ok();
        }
    });
    got
}

/// Waits for `before`, sends `bytes`, and reports whether they were refused, that is, not echoed.
fn refused(world: &World, authority: &str, before: Duration, bytes: &[u8]) -> bool {
    world.events.take();
    let mut client = tunnel(world.http, authority).unwrap();
    // A longer wait only makes the failure more certain.
    std::thread::sleep(before);
    client.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    let came_back = client.read_exact(&mut back).is_ok() && back == bytes;
    if !came_back {
        let ends = |event: &nexus_egress::Event| matches!(event.event, EventKind::Cut | EventKind::Deny);
        eventually("the refusal in the record", || world.events.all().iter().any(ends));
    }
    !came_back
}

#[test]
fn a_late_or_oddly_started_hello_must_name_the_allowed_host() {
    if outside_of_netns() {
        return;
    }
    let got = listening(443);
    let empty = b"\x16\x03\x01\x00\x00";
    for world in worlds() {
        for before in [Duration::ZERO, HELLO_TIME * 4] {
            for begin in [&b""[..], empty] {
                let with = |name: &str| [begin, &hello(name, None)].concat();
                assert!(refused(&world, "web.test:443", before, &with("denied.test")), "{before:?} {begin:?}");
                assert!(got.try_recv().is_err(), "the server saw something of it");
                assert!(!refused(&world, "web.test:443", before, &with("web.test")), "{before:?} {begin:?}");
                got.recv_timeout(support::TIMEOUT).unwrap();
                while got.try_recv().is_ok() {}
            }
        }
    }
}

#[test]
fn a_late_or_oddly_started_request_must_name_the_allowed_host() {
    if outside_of_netns() {
        return;
    }
    let got = listening(80);
    let request = |line: &[u8]| [line, b"\r\nHost: denied.test\r\n\r\n"].concat();
    for world in worlds() {
        for line in [
            &b"GET / HTTP/1.1"[..],
            b"GET\t/ HTTP/1.1",
            b"GET\t/\tHTTP/1.1",
            b"\x0bGET / HTTP/1.1",
            b"GET\x0c/ HTTP/1.1",
            b"\x1cGET\x1c/ HTTP/1.1",
            b"GET\r/\rHTTP/1.1",
        ] {
            for before in [Duration::ZERO, HELLO_TIME * 4] {
                assert!(refused(&world, "web.test:80", before, &request(line)), "{before:?} {line:?}");
                assert!(got.try_recv().is_err(), "the server saw {line:?}");
            }
        }
        // Something else passes, also late.
        for before in [Duration::ZERO, HELLO_TIME * 4] {
            assert!(!refused(&world, "web.test:80", before, b"PING\r\n"));
            assert_eq!(got.recv_timeout(support::TIMEOUT).unwrap(), b"PING\r\n");
        }
    }
}

/// Waits for the last line of one connection.
fn closed(world: &World) -> Event {
    eventually("the end in the record", || world.events.has(EventKind::Close));
    world.events.take().into_iter().find(|event| event.event == EventKind::Close).unwrap()
}

#[test]
fn another_name_that_was_let_through_is_in_the_record() {
    if outside_of_netns() {
        return;
    }
    let got = listening(443);
    server("127.0.0.1:80", |mut stream: TcpStream| {
        while support::read_head(&mut stream).starts_with("GET") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let [_, world] = worlds();
    for (name, asked) in [("Other.Test", &["other.test"][..]), ("web.test", &[])] {
        let mut client = tunnel(world.http, "web.test:443").unwrap();
        client.write_all(&hello(name, None)).unwrap();
        got.recv_timeout(support::TIMEOUT).unwrap();
        drop(client);
        let closed = closed(&world);
        assert_eq!(closed.asked, asked, "{name}");
        assert_eq!(closed.line().unwrap().contains("asked"), !asked.is_empty(), "an empty list is left out");
    }
    let names = ["web.test", "a.test", "A.test:80", "b.test"];
    let mut client = tunnel(world.http, "web.test:80").unwrap();
    for name in names {
        write!(client, "GET / HTTP/1.1\r\nHost: {name}\r\n\r\n").unwrap();
        assert_eq!(support::response(&mut client).0, 200);
    }
    let requests = || world.events.all().into_iter().filter(|event| event.event == EventKind::Request);
    let each: Vec<Vec<String>> = requests().map(|event| event.asked).collect();
    assert_eq!(each, [&[][..], &["a.test"], &["a.test"], &["b.test"]]);
    // The last line has the first eight; each request has its own.
    for number in 0..8 {
        write!(client, "GET / HTTP/1.1\r\nHost: n{number}.test\r\n\r\n").unwrap();
        assert_eq!(support::response(&mut client).0, 200);
    }
    assert_eq!(requests().next_back().unwrap().asked, ["n7.test"]);
    drop(client);
    let closed = closed(&world);
    assert_eq!(closed.asked.len(), 8);
    assert_eq!(closed.asked[..3], ["a.test", "b.test", "n0.test"]);
}

#[test]
fn a_name_that_was_refused_is_not_in_the_list_of_the_record() {
    if outside_of_netns() {
        return;
    }
    let _got = listening(443);
    let [_, world] = worlds();
    let mut client = tunnel(world.http, "web.test:443").unwrap();
    client.write_all(&hello("denied.test", None)).unwrap();
    eventually("the cut in the record", || world.events.has(EventKind::Cut));
    let cut = world.events.take().into_iter().find(|event| event.event == EventKind::Cut).unwrap();
    assert_eq!(cut.asked, [""; 0]);
    assert!(cut.explanation.unwrap().contains("denied.test"), "the reason names it");
}
