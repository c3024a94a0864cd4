//! HTTP inside of connections to port 80: each request is read and decided, for every way in.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, Limits};
use nexus_policy::net::{Budget, DenyCode, Methods, MissingSni, PolicyInput};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::{
    TIMEOUT, World, connect, echo, enter, eventually, field, input, outside_of_netns, policy, read_all, read_head,
    response, server, status, tunnel,
};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts an HTTP server on port 80 that answers each request with its path, and reports the heads that it saw. It ends
/// the connection after `/last`.
fn web() -> Receiver<String> {
    let (seen, heads) = channel();
    server("127.0.0.1:80", move |mut stream| {
        loop {
            let head = read_head(&mut stream);
            if head.is_empty() {
                return;
            }
            let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            seen.send(head + &String::from_utf8_lossy(&body)).ok();
            let length = path.len();
            if write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{path}").is_err() || path == "/last" {
                return;
            }
        }
    });
    heads
}

fn world_with(change: impl FnOnce(PolicyInput) -> PolicyInput) -> World {
    world_in(Duration::from_millis(300), change)
}

fn world_in(hello_time: Duration, change: impl FnOnce(PolicyInput) -> PolicyInput) -> World {
    let limits = Limits { hello_time, ..Limits::default() };
    let world = World::with(change(input(&["+web.test:80", "+other.test:80"])), |config| config.limits = limits);
    world.resolver.set("web.test", &[LOCAL]);
    world
}

fn world() -> World {
    world_with(|input| input)
}

fn lax() -> World {
    world_with(|input| PolicyInput { missing_sni: Some(MissingSni::Allow), ..input })
}

fn to_web(world: &World) -> TcpStream {
    tunnel(world.http, "web.test:80").unwrap()
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: web.test\r\n\r\n")
}

fn body(stream: &mut TcpStream) -> String {
    let (code, head, body) = response(stream);
    assert_eq!(code, 200, "{head}");
    String::from_utf8(body).unwrap()
}

#[test]
fn kept_and_pipelined_requests_are_answered_in_order_and_each_is_recorded() {
    if outside_of_netns() {
        return;
    }
    let heads = web();
    let world = world();
    let mut client = to_web(&world);
    let post = "POST /b HTTP/1.1\r\nHost: web.test\r\nContent-Length: 4\r\n\r\nbody";
    write!(client, "{}{post}{}", get("/a"), get("/c")).unwrap();
    assert_eq!([body(&mut client), body(&mut client), body(&mut client)], ["/a", "/b", "/c"]);
    client.write_all(get("/d").as_bytes()).unwrap();
    assert_eq!(body(&mut client), "/d");
    assert!(heads.iter().nth(1).unwrap().ends_with("\r\n\r\nbody"));
    // The server ends its connection, the client's goes on: on a new one, decided again.
    client.write_all(get("/last").as_bytes()).unwrap();
    assert_eq!(body(&mut client), "/last");
    eventually("the server's end", || {
        client.write_all(get("/e").as_bytes()).unwrap();
        assert_eq!(body(&mut client), "/e");
        world.events.all().iter().filter(|event| event.event == EventKind::Allow).count() == 2
    });
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client).unwrap(), b"");
    let events = world.events.all();
    assert_eq!(events.iter().filter(|event| event.event == EventKind::Request).count(), 5, "{events:?}");
    assert!(events.iter().all(|event| event.host == "web.test" && event.way == events[0].way), "{events:?}");
}

#[test]
fn a_request_that_disagrees_ends_the_connection_and_the_server_sees_nothing_of_it() {
    if outside_of_netns() {
        return;
    }
    let heads = web();
    let world = world();
    for second in [
        "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
        "GET /\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nHost: web.test\n\n",
        "GET / HTTP/1.1\r\nHost: web.test\r\nHost: web.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: web.test\r\nUpgrade: h2c, websocket\r\nConnection: Upgrade\r\n\r\n",
        "GET https://web.test/ HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "GET http://web.test:80@other.test/ HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "GET http://other.test/ HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "GET web.test HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "GET /#a HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "CONNECT web.test:80 HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "CONNECT / HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nHost: web.test\r\n\r\n",
        "\x16\x03\x01\x02\x00",
    ] {
        world.events.take();
        let mut client = to_web(&world);
        client.write_all(get("/first").as_bytes()).unwrap();
        assert_eq!(body(&mut client), "/first");
        heads.recv().unwrap();
        client.write_all(format!("{second}{}", get("/smuggled")).as_bytes()).unwrap();
        let head = read_head(&mut client);
        assert_eq!((status(&head), field(&head, "x-proxy-error")), (400, Some("INVALID_DESTINATION")), "{second:?}");
        assert_eq!(field(&head, "connection"), Some("close"), "{second:?}");
        read_all(&mut client).unwrap();
        eventually("the end", || world.events.has(EventKind::Close));
        assert!(heads.try_recv().is_err(), "the server saw something of {second:?}");
        let events = world.events.all();
        let denied = events.iter().find(|event| event.event == EventKind::Deny).unwrap();
        assert_eq!((denied.host.as_str(), denied.port), ("web.test", 80), "the record says on which connection");
    }
    // The harmless twins.
    for path in ["/", "/?a=b", "http://web.test/x", "HTTP://WEB.test:80/x"] {
        let mut client = to_web(&world);
        client.write_all(get(path).as_bytes()).unwrap();
        body(&mut client);
        let head = heads.recv().unwrap();
        assert!(head.contains(" HTTP/1.1\r\nHost: web.test\r\n"), "{head}");
    }
    let mut client = to_web(&world);
    client.write_all(b"OPTIONS * HTTP/1.1\r\nHost: web.test\r\n\r\n").unwrap();
    assert_eq!(body(&mut client), "*");
    let mut client = to_web(&world);
    client.write_all(b"GET /old HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(body(&mut client), "/old");
}

#[test]
fn another_name_in_an_open_network_is_passed_on_as_it_was_said() {
    if outside_of_netns() {
        return;
    }
    server("11.22.33.45:80", |mut stream| {
        let head = read_head(&mut stream);
        let host = field(&head, "host").unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{host}", host.len()).unwrap();
    });
    let open = PolicyInput { mode: Some(nexus_model::capability::NetMode::Unrestricted), ..PolicyInput::default() };
    let world = World::of(open);
    for host in ["other.test", "11.22.33.45", "Other.Test:80"] {
        let to = SocketAddr::from(([11, 22, 33, 45], 80));
        let mut client = enter::by_transparent(&world, to).unwrap();
        write!(client, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        assert_eq!(body(&mut client), host.to_lowercase().trim_end_matches(":80"));
    }
}

#[test]
fn what_is_no_http_follows_the_setting() {
    if outside_of_netns() {
        return;
    }
    server("127.0.0.1:80", echo);
    let (strict, lax) = (world(), lax());
    for bytes in [&b"SSH-2.0-x\r\n"[..], b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01\x00\x00", b"\0", b"PING\r\n"] {
        let mut client = to_web(&lax);
        client.write_all(bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
    }
    // The last two: a method that never ends, and silence.
    for bytes in [&b"SSH-2.0-x\r\n"[..], b"PRI * HTTP/2.0\r\n\r\n", b"\x16\x03\x01\x00\x00", b"GE", b""] {
        strict.events.take();
        let mut client = to_web(&strict);
        client.write_all(bytes).unwrap();
        assert_eq!(read_all(&mut client), None, "a reset without a byte for {bytes:?}");
        eventually("the cut in the record", || strict.events.has(EventKind::Cut));
        let cut = strict.events.take().pop().unwrap();
        assert_eq!((cut.code, cut.bytes_up), (DenyCode::InvalidDestination, Some(0)), "nothing went up");
    }
    // Whatever the setting: what may become a request is not passed on unread.
    lax.events.take();
    let mut client = to_web(&lax);
    client.write_all(b"GE").unwrap();
    assert_eq!(read_all(&mut client), None, "a reset");
    eventually("the cut in the record", || lax.events.has(EventKind::Cut));
    let long = format!("{} / HTTP/1.1\r\nHost: denied.test\r\n\r\n", "A".repeat(40));
    for before in ["\r\n", "\n", " ", "\r\n\r\n", &long] {
        let mut client = to_web(&lax);
        write!(client, "{before}GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n").unwrap();
        let (code, head, _) = response(&mut client);
        assert!((400..500).contains(&code), "{before:?}: {head}");
    }
    // A client that goes before it said anything did nothing that would be denied.
    strict.events.take();
    drop(to_web(&strict));
    eventually("the end", || strict.events.has(EventKind::Close));
    assert!(!strict.events.has(EventKind::Cut));
}

#[test]
fn a_server_that_speaks_first_is_read_where_the_setting_allows_it() {
    if outside_of_netns() {
        return;
    }
    server("127.0.0.1:80", |mut stream| {
        stream.write_all(b"220 hi\r\n").unwrap();
        echo(stream);
    });
    // Long before the time for a request is over.
    let strict = world_in(2 * TIMEOUT, |input| input);
    let lax = world_in(2 * TIMEOUT, |input| PolicyInput { missing_sni: Some(MissingSni::Allow), ..input });
    let mut client = to_web(&lax);
    let mut said = [0; 8];
    client.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"220 hi\r\n");
    client.write_all(b"EHLO a\r\n").unwrap();
    client.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"EHLO a\r\n");
    let mut client = to_web(&strict);
    assert_eq!(read_all(&mut client), None, "not a byte of the greeting");
}

#[test]
fn a_websocket_inside_is_a_tunnel_that_a_policy_for_reading_cuts() {
    if outside_of_netns() {
        return;
    }
    server("127.0.0.1:80", |mut stream| {
        let head = read_head(&mut stream);
        if field(&head, "upgrade").is_some() {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            stream.write_all(switch.as_bytes()).unwrap();
            return echo(stream);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        read_all(&mut stream);
    });
    let lax = lax();
    let mut socket = to_web(&lax);
    socket
        .write_all(b"GET / HTTP/1.1\r\nHost: web.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nping")
        .unwrap();
    assert_eq!(status(&read_head(&mut socket)), 101);
    let mut pong = [0; 4];
    socket.read_exact(&mut pong).unwrap();
    assert_eq!(&pong, b"ping");
    let mut http = to_web(&lax);
    http.write_all(get("/").as_bytes()).unwrap();
    assert_eq!(response(&mut http).0, 200);
    let read_only = PolicyInput {
        methods: Methods::ReadOnly,
        missing_sni: Some(MissingSni::Allow),
        generation: 2,
        ..input(&["+web.test:80"])
    };
    assert_eq!(lax.egress().reload(policy(read_only)).unwrap(), 1, "the tunnel, and not the connection beside it");
    assert_eq!(read_all(&mut socket), None, "a reset");
    http.write_all(b"DELETE / HTTP/1.1\r\nHost: web.test\r\n\r\n").unwrap();
    let (code, head, _) = response(&mut http);
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("METHOD_NOT_ALLOWED")));
}

#[test]
fn a_connection_that_a_new_policy_forbids_is_cut_between_two_requests() {
    if outside_of_netns() {
        return;
    }
    let _heads = web();
    let world = world();
    let mut client = to_web(&world);
    client.write_all(get("/").as_bytes()).unwrap();
    assert_eq!(body(&mut client), "/");
    let denies = PolicyInput { generation: 2, ..input(&["+web.test:80", "-web.test"]) };
    assert_eq!(world.egress().reload(policy(denies)).unwrap(), 1);
    assert_eq!(read_all(&mut client), None, "a reset");
}

#[test]
fn requests_inside_count_for_the_budget_and_long_heads_are_refused() {
    if outside_of_netns() {
        return;
    }
    let _heads = web();
    let world = world_with(|input| PolicyInput { budget: Budget { requests: Some(2), ..Budget::default() }, ..input });
    let mut client = enter::by_socks(&world, 3, b"web.test", 80).unwrap();
    for expected in [200, 200, 429] {
        client.write_all(get("/").as_bytes()).unwrap();
        assert_eq!(response(&mut client).0, expected);
    }
    let mut client = to_web(&world);
    // The answer may come, and the connection end, before all was written.
    write!(client, "GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(1 << 20)).ok();
    assert_eq!(status(&read_head(&mut client)), 431);
    let mut proxy = connect(world.http);
    proxy.write_all(b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n").unwrap();
    assert_eq!(status(&read_head(&mut proxy)), 400, "a path alone is nothing to ask a proxy for");
}
