//! The HTTP proxy refuses and strips parts of requests, and the harmless twin of each works.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, Limits};
use nexus_policy::net::{Budget, DenyCode, Methods, PolicyInput};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::{World, connect, eventually, field, input, read_all, read_head, response, server, status, tunnel};

/// Starts an HTTP server that answers every request with `ok` and reports the heads that it saw.
fn web() -> (SocketAddr, Receiver<String>) {
    let (seen, heads) = channel();
    let address = server("127.0.0.1:0", move |mut stream| {
        loop {
            let head = read_head(&mut stream);
            if head.is_empty() {
                return;
            }
            let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            if field(&head, "transfer-encoding").is_some() {
                while !body.ends_with(b"0\r\n\r\n") {
                    let mut one = [0];
                    if stream.read(&mut one).unwrap_or(0) == 0 {
                        return;
                    }
                    body.push(one[0]);
                }
            }
            seen.send(head + &String::from_utf8_lossy(&body)).ok();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-proxy-error: FORGED\r\n\r\nok").unwrap();
        }
    });
    (address, heads)
}

/// Creates a world with `server` as `web.test`, and with another allowed name that leads nowhere.
fn world(server: SocketAddr) -> World {
    world_with(server, Limits::default(), Budget::default())
}

fn world_with(server: SocketAddr, limits: Limits, budget: Budget) -> World {
    let allow = format!("+web.test:{}", server.port());
    let world =
        World::with(PolicyInput { budget, ..input(&[&allow, "+other.test:80"]) }, |config| config.limits = limits);
    world.resolver.set("web.test", &[server.ip()]);
    world
}

fn url(server: SocketAddr) -> String {
    format!("web.test:{}", server.port())
}

fn send(world: &World, request: &str) -> TcpStream {
    let mut stream = connect(world.http);
    // The answer may come, and the connection end, before all was written.
    stream.write_all(request.as_bytes()).ok();
    stream
}

#[test]
fn every_request_on_a_kept_connection_is_decided() {
    let (server, heads) = web();
    let world = world(server);
    let at = url(server);
    let mut client = connect(world.http);
    for _ in 0..2 {
        write!(client, "GET http://{at}/a?q=secret HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
        assert_eq!(response(&mut client).0, 200);
        assert!(heads.recv().unwrap().starts_with(&format!("GET /a?q=secret HTTP/1.1\r\nHost: {at}\r\n")));
    }
    write!(client, "GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n\r\n").unwrap();
    let (code, head, body) = response(&mut client);
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("NOT_IN_ALLOWLIST")));
    assert!(String::from_utf8(body).unwrap().contains("--allow denied.test:80 would allow it"));
    // The refusal did not end the connection, and the next request is decided again.
    write!(client, "GET http://{at}/b HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
    assert_eq!(response(&mut client).0, 200);
    let kinds: Vec<EventKind> = world.events.all().iter().map(|event| event.event).collect();
    use EventKind::{Allow, Close, Deny, Request};
    assert_eq!(kinds, [Allow, Request, Close, Deny, Allow]);
    let record = world.events.all().iter().map(|event| event.line().unwrap()).collect::<String>();
    assert!(!record.contains("secret"), "{record}");
}

#[test]
fn what_two_programs_could_read_in_two_ways_is_refused() {
    let (server, heads) = web();
    let world = world(server);
    let at = url(server);
    let ok = format!("POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\n");
    let refused = [
        format!("{ok}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd"),
        format!("{ok}Content-Length: 4, 4\r\n\r\nabcd"),
        format!("{ok}Content-Length: +4\r\n\r\nabcd"),
        format!("{ok}Content-Length: 0x4\r\n\r\nabcd"),
        format!("{ok}Content-Length: 4 4\r\n\r\nabcd"),
        format!("{ok}Content-Length: -1\r\n\r\n"),
        format!("{ok}Content-Length: 99999999999999999999\r\n\r\n"),
        format!("{ok}Content-Length:\r\n\r\n"),
        format!("{ok}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("{ok}Transfer-Encoding: identity\r\n\r\n"),
        format!("{ok}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        format!("{ok} Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("{ok}X: a\r\n folded\r\n\r\n"),
        format!("{ok}X: a\r\n\tfolded\r\n\r\n"),
        format!("{ok}X: a\n\r\n"),
        format!("{ok}X: a\rb\r\n\r\n"),
        format!("{ok}X: a\0b\r\n\r\n"),
        format!("{ok}X: a\x01b\r\n\r\n"),
        format!("{ok}X: a\x0bb\r\n\r\n"),
        format!("{ok}X: a\x1bb\r\n\r\n"),
        format!("{ok}X: a\x7fb\r\n\r\n"),
        format!("{ok}X\r\n\r\n"),
        format!("{ok}: x\r\n\r\n"),
        format!("{ok}X[: x\r\n\r\n"),
        format!("{ok}Upgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 1\r\n\r\nx"),
        format!("{ok}Host: {at}\r\n\r\n"),
        format!("{ok}Host: other.test\r\n\r\n"),
        format!("POST http://{at}/ HTTP/1.1\nHost: {at}\n\n"),
        format!("\r\n\r\nPOST http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST  http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/ HTTP/1.1 \r\nHost: {at}\r\n\r\n"),
        format!("POST\thttp://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/ HTTP/1.2\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/ http/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/ HTTP/2.0\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/a\u{e9} HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/#f HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST http://user:geheim@{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST http://{at}/ HTTP/1.1\r\n\r\n"),
        format!("POST http://{at}/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("POST https://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST ftp://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("POST / HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        "OPTIONS * HTTP/1.1\r\nHost: web.test\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
        format!("CONNECT {at} HTTP/1.1\r\nHost: other.test:443\r\n\r\n"),
        format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\nContent-Length: 3\r\n\r\nabc"),
        format!("CONNECT http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
        format!("CONNECT user:geheim@{at} HTTP/1.1\r\n\r\n"),
        "\x05\x01\x00".into(),
        "\x16\x03\x01\x02\x00".into(),
    ];
    for request in refused {
        // What follows would be the smuggled request.
        let mut client = send(&world, &format!("{request}GET http://{at}/smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n"));
        let head = read_head(&mut client);
        assert_eq!((status(&head), field(&head, "x-proxy-error")), (400, Some("INVALID_DESTINATION")), "{request:?}");
        assert_eq!(field(&head, "connection"), Some("close"), "{request:?}");
        read_all(&mut client);
        assert!(heads.try_recv().is_err(), "the server saw {request:?}");
    }
    let record = world.events.all().iter().map(|event| event.line().unwrap()).collect::<String>();
    assert!(!record.contains("geheim") && !record.contains("smuggled"), "{record}");
    assert!(world.events.all().iter().all(|event| event.event == EventKind::Deny));
    // The harmless twins.
    for body in [
        "Content-Length: 4\r\n\r\nabcd",
        "X: a\tb\r\nContent-Length: 4\r\n\r\nabcd",
        "Transfer-Encoding: chunked\r\n\r\n4\r\nabcd\r\n0\r\n\r\n",
        "Transfer-Encoding: CHUNKED\r\n\r\n4\r\nabcd\r\n0\r\nTrailer-Field: dropped\r\n\r\n",
    ] {
        let mut client = send(&world, &format!("{ok}{body}"));
        assert_eq!(response(&mut client).0, 200, "{body:?}");
        let seen = heads.recv().unwrap();
        assert!(seen.contains("abcd") && !seen.contains("Trailer-Field"), "{seen}");
    }
}

#[test]
fn the_body_of_a_refused_request_is_never_read_as_a_request() {
    let (server, heads) = web();
    let at = url(server);
    let smuggled = format!("GET http://{at}/smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let sized = format!("Content-Length: {}\r\n\r\n{smuggled}", smuggled.len());
    let chunked = format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    let rules = || input(&[&format!("+{at}")]);
    for body in [&sized, &chunked] {
        for (rules, wanted, host) in [
            (rules(), 403, "denied.test"),
            (PolicyInput { methods: Methods::ReadOnly, ..rules() }, 403, &at),
            (PolicyInput { budget: Budget { requests: Some(0), ..Budget::default() }, ..rules() }, 429, &at),
        ] {
            let (world, target) = (World::of(rules), format!("http://{host}/"));
            world.resolver.set("web.test", &[server.ip()]);
            let mut client = send(&world, &format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n{body}"));
            let (code, head, _) = response(&mut client);
            assert_eq!((code, field(&head, "connection")), (wanted, Some("close")), "{target} {body:?}");
            assert!(read_all(&mut client).is_none_or(|rest| rest.is_empty()), "{target} {body:?}");
            assert!(heads.try_recv().is_err(), "{target} {body:?}");
            assert_eq!(world.events.all().len(), 1, "{target}: {:?}", world.events.all());
        }
    }
}

#[test]
fn a_body_that_breaks_its_coding_ends_both_connections() {
    let (server, heads) = web();
    let world = world(server);
    let at = url(server);
    for chunks in [
        "4;x=y\r\nabcd\r\n0\r\n\r\n",
        "4 \r\nabcd\r\n0\r\n\r\n",
        "4\nabcd\n0\n\n",
        "+4\r\nabcd\r\n0\r\n\r\n",
        "0x4\r\nabcd\r\n0\r\n\r\n",
        "\r\nabcd\r\n0\r\n\r\n",
        "10000000000000004\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "4\r\nabcd\r\n0\r\nX : y\r\n\r\n",
        "4\r\nabcd\r\n0\r\nX: y\n\r\n",
    ] {
        let request = format!(
            "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}\
             GET http://{at}/smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n"
        );
        let mut client = send(&world, &request);
        let head = read_head(&mut client);
        assert_eq!((status(&head), field(&head, "connection")), (400, Some("close")), "{chunks:?}");
        read_all(&mut client);
        assert!(heads.try_recv().is_err(), "{chunks:?}");
    }
}

#[test]
fn fields_of_one_hop_are_stripped_and_no_client_forges_ours() {
    let (server, heads) = web();
    let world = world(server);
    let at = url(server);
    let mut client = send(
        &world,
        &format!(
            "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: keep-alive, X-Private, host\r\nX-Private: 1\r\n\
             Keep-Alive: 5\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nTE: trailers\r\n\
             Trailer: X\r\nUpgrade-Insecure-Requests: 1\r\nAccept: */*\r\n\r\n"
        ),
    );
    let (code, head, body) = response(&mut client);
    assert_eq!((code, body.as_slice()), (200, b"ok".as_slice()));
    assert_eq!(field(&head, "x-proxy-error"), None);
    let seen = heads.recv().unwrap();
    assert_eq!(seen, format!("GET / HTTP/1.1\r\nHost: {at}\r\nUpgrade-Insecure-Requests: 1\r\nAccept: */*\r\n\r\n"));
}

#[test]
fn too_much_gets_its_own_status_and_others_are_unaffected() {
    let (server, _heads) = web();
    let limits = Limits { head_time: Duration::from_secs(1), clients: 3, ..Limits::default() };
    let world = world_with(server, limits, Budget::default());
    let at = url(server);
    let head = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n");
    let long = "a".repeat(1 << 20);
    for (request, expected) in [
        (format!("{head}X: {long}\r\n\r\n"), 431),
        (format!("{head}{}\r\n", "X: y\r\n".repeat(10_000)), 431),
        (format!("GET http://{at}/{long} HTTP/1.1\r\n\r\n"), 414),
        (format!("{head}X: never ends"), 408),
    ] {
        let mut client = send(&world, &request);
        assert_eq!(status(&read_head(&mut client)), expected);
        read_all(&mut client);
    }
    // Three that say nothing take all places; the next one gets that answer, and a place when they go.
    let silent: Vec<TcpStream> = (0..3).map(|_| connect(world.http)).collect();
    eventually("a refusal for want of a place", || {
        let mut client = send(&world, &format!("{head}\r\n"));
        let answer = read_head(&mut client);
        status(&answer) == 429 && field(&answer, "x-proxy-error") == Some("LIMIT_EXCEEDED")
    });
    drop(silent);
    eventually("a place", || status(&read_head(&mut send(&world, &format!("{head}\r\n")))) == 200);
}

#[test]
fn a_budget_of_requests_and_bytes_is_kept() {
    let (server, _heads) = web();
    let budget = Budget { requests: Some(2), ..Budget::default() };
    let world = world_with(server, Limits::default(), budget);
    let at = url(server);
    let mut client = connect(world.http);
    for expected in [200, 200, 429] {
        write!(client, "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n").unwrap();
        assert_eq!(response(&mut client).0, expected);
    }
    let many = server_of_bytes();
    let budget = Budget { bytes_down: Some(100_000), ..Budget::default() };
    let world = world_with(many, Limits::default(), budget);
    let mut client = tunnel(world.http, &url(many)).unwrap();
    let mut got = 0;
    let mut buffer = [0; 4096];
    while let Ok(count) = client.read(&mut buffer) {
        assert_ne!(count, 0, "a cut stream must not look like a finished one");
        got += count;
        // In the loop: without a budget the server never ends.
        assert!(got <= 100_000, "{got}");
    }
    eventually("the cut in the record", || world.events.has(EventKind::Cut));
    assert_eq!(world.egress().summary().denied[0].code, DenyCode::LimitExceeded);
}

#[test]
fn what_fits_a_budget_of_bytes_to_the_last_one_is_read_whole() {
    let exactly = server("127.0.0.1:0", |mut stream| stream.write_all(&vec![7; 100_000]).unwrap());
    let budget = Budget { bytes_down: Some(100_000), ..Budget::default() };
    let world = world_with(exactly, Limits::default(), budget);
    let mut client = tunnel(world.http, &url(exactly)).unwrap();
    assert_eq!(read_all(&mut client).map(|bytes| bytes.len()), Some(100_000));
    drop(client);
    eventually("the last line", || world.events.has(EventKind::Close));
}

fn server_of_bytes() -> SocketAddr {
    server("127.0.0.1:0", |mut stream| while stream.write_all(&[7; 4096]).is_ok() {})
}

#[test]
fn a_half_closed_client_still_gets_its_answer() {
    let slow = server("127.0.0.1:0", |mut stream| {
        let request = read_all(&mut stream).unwrap();
        stream.write_all(&request).unwrap();
    });
    let world = world(slow);
    let mut client = tunnel(world.http, &url(slow)).unwrap();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client).unwrap(), b"question");
    eventually("the last line", || world.events.has(EventKind::Close));
    let close = world.events.take().pop().unwrap();
    assert_eq!((close.bytes_up, close.bytes_down), (Some(8), Some(8)));
}

#[test]
fn a_websocket_is_evaluated_like_a_request_and_then_a_tunnel() {
    let upstream = server("127.0.0.1:0", |mut stream| {
        let head = read_head(&mut stream);
        assert_eq!(field(&head, "upgrade"), Some("websocket"));
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
            .unwrap();
        support::echo(stream);
    });
    let world = world(upstream);
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    let mut denied = send(&world, &format!("GET http://denied.test/ HTTP/1.1\r\nHost: denied.test\r\n{upgrade}"));
    assert_eq!(status(&read_head(&mut denied)), 403);
    let at = url(upstream);
    let mut client = send(&world, &format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{upgrade}ping"));
    let head = read_head(&mut client);
    assert_eq!(status(&head), 101, "{head}");
    let mut said = [0; 9];
    client.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"helloping");
}

#[test]
fn answers_that_cannot_be_trusted_are_not_passed_on() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n X: a\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
        "",
    ] {
        let bad = server("127.0.0.1:0", move |mut stream| {
            read_head(&mut stream);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let world = world(bad);
        let at = url(bad);
        let mut client = send(&world, &format!("POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"));
        let (code, head, _) = response(&mut client);
        assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("OTHER")), "{answer:?}");
    }
}

/// A field may hold the name of a file in any encoding, and is passed on as the server sent it.
#[test]
fn words_behind_a_status_are_ascii_and_fields_stay_as_sent() {
    let odd = server("127.0.0.1:0", |mut stream| {
        read_head(&mut stream);
        stream
            .write_all(
                b"HTTP/1.1 200 O\x9b31m\x1b[8m\xc2\x9bK!\r\nX-Name: \x9bn\xc3\xbc\r\nConnection: close\r\n\r\nok",
            )
            .unwrap();
    });
    let world = world(odd);
    let at = url(odd);
    let mut client = send(&world, &format!("GET http://{at}/ HTTP/1.0\r\nHost: {at}\r\n\r\n"));
    let answer = read_all(&mut client).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 O31m[8mK!\r\nX-Name: \x9bn\xc3\xbc\r\n"), "{}", answer.escape_ascii());
}

/// Servers of several frameworks take such a request for one with the method of the field.
#[test]
fn a_field_that_names_another_method_is_decided_like_one() {
    let (server, heads) = web();
    let at = url(server);
    let world_of = |methods| {
        let world = World::with(PolicyInput { methods, ..input(&[&format!("+{at}")]) }, |_| {});
        world.resolver.set("web.test", &[server.ip()]);
        world
    };
    let get = |world: &World, fields: &str| {
        let mut client = send(world, &format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{fields}\r\n"));
        let (code, head, _) = response(&mut client);
        (code, field(&head, "x-proxy-error").map(str::to_owned))
    };
    let (reading, any) = (world_of(Methods::ReadOnly), world_of(Methods::Any));
    for fields in [
        "X-HTTP-Method-Override: DELETE\r\n",
        "x_http_method_override: PUT\r\n",
        "X-HTTP-Method: MERGE\r\n",
        "X.HTTP.Method.Override: DELETE\r\n",
        "X-HTTP!Method~Override: DELETE\r\n",
        "X-Method-Override: GET, POST\r\n",
        "X-HTTP-Method-Override: GET\r\nX-HTTP-Method-Override: \u{9b}PATCH\r\n",
        "X-HTTP-Method-Override:\r\n",
    ] {
        assert_eq!(get(&reading, fields), (403, Some("METHOD_NOT_ALLOWED".to_owned())), "{fields}");
        assert!(heads.try_recv().is_err(), "{fields}");
        assert_eq!(get(&any, fields), (200, None), "{fields}");
        heads.recv().unwrap();
    }
    for fields in ["", "X-HTTP-Method-Override: HEAD\r\n", "X-HTTP-Methods: DELETE\r\nX-Method: DELETE\r\n"] {
        assert_eq!(get(&reading, fields), (200, None), "{fields}");
        assert!(heads.recv().unwrap().ends_with(&format!("{fields}\r\n")), "{fields}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_not_taken_for_whole() {
    let short = server("127.0.0.1:0", |mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort").unwrap();
    });
    let world = world(short);
    let at = url(short);
    let mut client = send(&world, &format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"));
    assert_eq!(read_all(&mut client), None, "a reset");
}

#[test]
fn interim_answers_and_early_ones_come_through() {
    let upstream = server("127.0.0.1:0", |mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        let mut body = [0; 2];
        stream.read_exact(&mut body).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").unwrap();
    });
    let world = world(upstream);
    let at = url(upstream);
    let mut client = send(
        &world,
        &format!("POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"),
    );
    assert_eq!(status(&read_head(&mut client)), 100);
    client.write_all(b"ab").unwrap();
    let head = read_head(&mut client);
    assert_eq!((status(&head), field(&head, "transfer-encoding")), (200, Some("chunked")));
    let mut body = [0; 12];
    client.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"2\r\nok\r\n0\r\n\r\n");
    let early = server("127.0.0.1:0", |mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
        read_all(&mut stream);
    });
    let world = self::world(early);
    let at = url(early);
    let mut client = send(&world, &format!("POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: 9\r\n\r\nx"));
    assert_eq!(response(&mut client).0, 413);
    assert_eq!(read_all(&mut client).unwrap_or_default(), b"", "the connection ends");
}

#[test]
fn an_absent_server_is_distinguished_from_a_denial() {
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let world = world(gone);
    let (code, head, _) = tunnel(world.http, &url(gone)).unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("OTHER")));
    eventually("the failure in the record", || world.events.has(EventKind::Fail));
    let (code, head, _) = tunnel(world.http, "other.test:80").unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("NAME_NOT_RESOLVED")));
}
