//! Answers of servers: the bytes that the egress drops count like those that it passes on, and a length without a body
//! is a number.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, UpstreamProxy};
use nexus_policy::net::{Budget, DenyCode, PolicyInput};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use support::{World, connect, eventually, field, input, read_all, read_head, response, server, tunnel};

/// Creates a server that answers each request with `said`, and a world with this budget for the bytes from it.
fn world(said: Vec<u8>, bytes_down: u64) -> (World, SocketAddr) {
    let at = server("127.0.0.1:0", move |mut stream: TcpStream| {
        read_head(&mut stream);
        // A reset in the middle is part of some tests.
        stream.write_all(&said).ok();
        read_all(&mut stream);
    });
    let budget = Budget { bytes_down: Some(bytes_down), ..Budget::default() };
    let world = World::of(PolicyInput { budget, ..input(&[&format!("+web.test:{}", at.port())]) });
    world.resolver.set("web.test", &[Ipv4Addr::LOCALHOST.into()]);
    (world, at)
}

fn ask(world: &World, at: SocketAddr, minor: u8) -> TcpStream {
    let mut client = connect(world.http);
    let host = format!("web.test:{}", at.port());
    write!(client, "GET http://{host}/ HTTP/1.{minor}\r\nHost: {host}\r\n\r\n").unwrap();
    client
}

/// Waits for the end of the connection and returns the number of bytes from the server that the record has.
fn received(world: &World) -> u64 {
    let ends = |event: &nexus_egress::Event| matches!(event.event, EventKind::Close | EventKind::Cut);
    eventually("the end in the record", || world.events.all().iter().any(ends));
    let end = world.events.take().into_iter().find(ends).unwrap();
    let summary = world.egress().summary();
    assert_eq!(summary.bytes_down, end.bytes_down.unwrap());
    summary.bytes_down
}

#[test]
fn what_is_dropped_of_an_answer_counts_as_received() {
    let last = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let interim = [&b"HTTP/1.1 102 Processing\r\nx: "[..], &[b'x'; 10_000], b"\r\n\r\n"].concat();
    let trailers =
        [&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000002\r\nok\r\n0\r\n"[..], b"x: y\r\n", b"\r\n"]
            .concat();
    for (said, status) in [
        ([&interim.repeat(9)[..], last].concat(), 200),
        (trailers, 200),
        ([&b"HTTP/1.1 200 OK\r\n x: "[..], &[b'x'; 3000], b"\r\n\r\n"].concat(), 502),
    ] {
        let (world, at) = world(said.clone(), u64::MAX);
        let mut client = ask(&world, at, 0);
        assert_eq!(support::status(&read_head(&mut client)), status);
        drop(client);
        assert_eq!(received(&world), said.len() as u64, "{status}");
    }
}

#[test]
fn interim_answers_that_no_client_gets_count_in_the_budget() {
    let interim = [&b"HTTP/1.1 102 Processing\r\nx: "[..], &[b'x'; 10_000], b"\r\n\r\n"].concat();
    let (world, at) = world(interim.repeat(20), 100_000);
    let (code, head, _) = response(&mut ask(&world, at, 0));
    assert_eq!((code, field(&head, "x-proxy-error")), (429, Some("LIMIT_EXCEEDED")));
    assert!(received(&world) > 50_000);
    assert_eq!(world.egress().summary().denied[0].code, DenyCode::LimitExceeded);
}

#[test]
fn interim_answers_are_bounded_in_bytes() {
    let interim = [&b"HTTP/1.1 102 Processing\r\nx: "[..], &[b'x'; 10_000], b"\r\n\r\n"].concat();
    let last = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    for minor in [0, 1] {
        let (world, at) = world([&interim.repeat(100)[..], last].concat(), u64::MAX);
        assert_eq!(read_all(&mut ask(&world, at, minor)), None, "a reset");
        assert!(received(&world) < 400_000);
    }
}

#[test]
fn a_length_without_a_body_is_one_number_or_left_out() {
    for (method, first, fields, passed) in [
        ("GET", "204 No Content", "Content-Length: 5000000000", None),
        ("GET", "204 No Content", "Content-Length: 5\r\nContent-Length: 6", None),
        ("GET", "304 Not Modified", "Content-Length: 5", Some("5")),
        ("GET", "304 Not Modified", "Content-Length: x\u{85}y", None),
        ("GET", "304 Not Modified", "Content-Length: 5\r\nContent-Length: 5", None),
        ("GET", "304 Not Modified", "Content-Length: 5\r\nTransfer-Encoding: chunked", None),
        ("HEAD", "200 OK", "Content-Length: 5000000000", Some("5000000000")),
        ("HEAD", "200 OK", "Content-Length: +5", None),
    ] {
        let (world, at) = world(format!("HTTP/1.1 {first}\r\n{fields}\r\n\r\n").into_bytes(), u64::MAX);
        let mut client = connect(world.http);
        let host = format!("web.test:{}", at.port());
        write!(client, "{method} http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        assert!(head.starts_with(&format!("HTTP/1.1 {first}\r\n")), "{head}");
        assert_eq!(field(&head, "content-length"), passed, "{first} {fields}");
    }
}

#[test]
fn the_answer_of_an_upstream_proxy_counts_as_received() {
    for (status, opens) in [(200, true), (503, false)] {
        let said =
            [format!("HTTP/1.1 {status} x\r\nx: ").into_bytes(), vec![b'x'; 5000], b"\r\n\r\n".to_vec()].concat();
        let whole = said.len() as u64;
        let proxy = server("127.0.0.1:0", move |mut stream: TcpStream| {
            read_head(&mut stream);
            stream.write_all(&said).unwrap();
            read_all(&mut stream);
        });
        let world = World::with(PolicyInput { upstream_proxy: true, ..input(&["web.test:6000"]) }, |config| {
            config.upstream_proxy = Some(UpstreamProxy::parse(&format!("http://{proxy}")).unwrap());
        });
        world.resolver.set("web.test", &[Ipv4Addr::new(93, 184, 216, 34).into()]);
        assert_eq!(tunnel(world.http, "web.test:6000").is_ok(), opens);
        assert_eq!(received(&world), whole, "{status}");
    }
}
