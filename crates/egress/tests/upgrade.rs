//! A request that offers another protocol than WebSocket goes on as plain HTTP/1.1.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::EventKind;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use support::{World, connect, field, input, read_all, read_head, response, server, status};

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ";

/// Starts a server that gives `answer` to every request, and reports the head and body that it read.
fn web(answer: &'static str) -> (SocketAddr, Receiver<String>) {
    let (seen, heads) = channel();
    let address = server("127.0.0.1:0", move |mut stream| {
        loop {
            let head = read_head(&mut stream);
            if head.is_empty() {
                return;
            }
            let mut body = vec![0; field(&head, "content-length").map_or(0, |length| length.parse().unwrap())];
            stream.read_exact(&mut body).unwrap();
            seen.send(head + &String::from_utf8_lossy(&body)).ok();
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    (address, heads)
}

fn world(server: SocketAddr) -> World {
    let world = World::of(input(&[&format!("+web.test:{}", server.port())]));
    world.resolver.set("web.test", &[server.ip()]);
    world
}

#[test]
fn an_offer_of_another_protocol_is_taken_out() {
    let (server, heads) = web(ANSWER);
    let world = world(server);
    let at = format!("web.test:{}", server.port());
    let settings =
        "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\nConnection: Upgrade, HTTP2-Settings\r\n";
    for (offer, kept, body) in [
        (settings, "", ""),
        ("Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk_-==\r\nConnection: upgrade, http2-settings\r\n", "", ""),
        ("Upgrade: H2C\r\nConnection: Upgrade\r\n", "", ""),
        ("Upgrade: h2c\r\n", "", ""),
        ("Upgrade: TLS/1.2\r\nConnection: Upgrade\r\n", "", ""),
        ("Upgrade: TLS/1.2 , h2c,HTTP/3.0\r\nConnection: Upgrade, x-hop\r\nX-Hop: 1\r\nX: 2\r\n", "X: 2\r\n", ""),
        ("Upgrade: TLS/1.2\r\nConnection: Upgrade\r\nContent-Length: 4\r\n", "Content-Length: 4\r\n", "body"),
    ] {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let mut client = connect(world.http);
        for _ in 0..2 {
            write!(client, "{method} http://{at}/a HTTP/1.1\r\nHost: {at}\r\n{offer}\r\n{body}").unwrap();
            assert_eq!(response(&mut client).0, 200, "{offer:?}");
            let wanted = format!("{method} /a HTTP/1.1\r\nHost: {at}\r\n{kept}\r\n{body}");
            assert_eq!(heads.recv().unwrap(), wanted, "{offer:?}");
        }
    }
}

#[test]
fn an_unclear_offer_of_a_protocol_is_refused() {
    let (server, heads) = web(ANSWER);
    let world = world(server);
    let at = format!("web.test:{}", server.port());
    for offer in [
        "Upgrade:\r\n",
        "Upgrade: ,\r\n",
        "Upgrade: h2c,\r\n",
        "Upgrade: h2c h2\r\n",
        "Upgrade: h2c;q=1\r\n",
        "Upgrade: h2c/\r\n",
        "Upgrade: /2\r\n",
        "Upgrade: a/b/c\r\n",
        "Upgrade: \"h2c\"\r\n",
        "Upgrade: h2c\u{e9}\r\n",
        "Upgrade: h2c\r\nUpgrade: h2c\r\n",
        "Upgrade: h2c\r\nUpgrade: websocket\r\n",
        "Upgrade: websocket, h2c\r\n",
        "Upgrade: h2c, WebSocket/13\r\n",
        "Upgrade: websocket/13\r\n",
        "HTTP2-Settings: AAA\r\n",
        "Upgrade: TLS/1.2\r\nHTTP2-Settings: AAA\r\n",
        "Upgrade: websocket\r\nHTTP2-Settings: AAA\r\n",
        "Upgrade: h2c\r\nHTTP2-Settings: AAA\r\nHTTP2-Settings: AAA\r\n",
        "Upgrade: h2c\r\nHTTP2-Settings:\r\n",
        "Upgrade: h2c\r\nHTTP2-Settings: A=A\r\n",
        "Upgrade: h2c\r\nHTTP2-Settings: AA, AA\r\n",
    ] {
        let mut client = connect(world.http);
        let offer = format!("{offer}Connection: Upgrade, HTTP2-Settings\r\n");
        let smuggled = format!("GET http://{at}/smuggled HTTP/1.1\r\nHost: {at}\r\n\r\n");
        // The answer may come, and the connection end, before all was written.
        write!(client, "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{offer}\r\n{smuggled}").ok();
        let head = read_head(&mut client);
        assert_eq!((status(&head), field(&head, "x-proxy-error")), (400, Some("INVALID_DESTINATION")), "{offer:?}");
        assert_eq!(field(&head, "connection"), Some("close"), "{offer:?}");
        read_all(&mut client);
        assert!(heads.try_recv().is_err(), "the server saw {offer:?}");
    }
    assert!(world.events.all().iter().all(|event| event.event == EventKind::Deny));
}

#[test]
fn a_server_cannot_switch_after_the_offer_was_taken_out() {
    for protocol in ["h2c", "websocket"] {
        let answer: &'static str = format!("{SWITCH}{protocol}\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").leak();
        let (server, heads) = web(answer);
        let world = world(server);
        let at = format!("web.test:{}", server.port());
        let mut client = connect(world.http);
        write!(client, "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n")
            .unwrap();
        let (code, head, _) = response(&mut client);
        assert_eq!((code, field(&head, "x-proxy-error")), (502, Some("OTHER")), "{head}");
        assert_eq!(field(&head, "connection"), Some("close"), "{head}");
        read_all(&mut client);
        assert!(!heads.recv().unwrap().to_ascii_lowercase().contains("upgrade"));
    }
}

#[test]
fn a_client_that_offers_http2_is_served() {
    let (server, heads) = web(ANSWER);
    let world = world(server);
    let (proxy, url) = (format!("http://{}", world.http), format!("http://web.test:{}/", server.port()));
    let arguments = ["-q", "-sS", "--max-time", "20", "--noproxy", "", "-w", " %{http_code}", "--proxy", &proxy, &url];
    for extra in [&["--http2"][..], &["--http2", "--data", "body"], &["-H", "Upgrade: TLS/1.2"]] {
        let got = Command::new("curl").args(extra).args(arguments).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&got.stdout), "ok 200", "{extra:?}: {got:?}");
        assert!(!heads.recv().unwrap().to_ascii_lowercase().contains("upgrade"), "{extra:?}");
    }
}
