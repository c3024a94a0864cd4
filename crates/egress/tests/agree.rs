//! One table of what clients say on connections that were allowed, through every way in.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::rr::Name;
use nexus_egress::{Event, EventKind, Limits};
use nexus_policy::net::vectors::{AGREE, Agree, FirstBytes, HttpQuestion};
use nexus_policy::net::{DenyCode, Host};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{World, connect, enter, eventually, field, hello, outside_of_netns, read_all, read_head, status};

/// Record of the servers: an entry for each request and for each piece of other bytes.
type Seen = Arc<Mutex<Vec<String>>>;

/// Starts a server on every port of the table, which answers requests and echoes everything else.
fn servers() -> Seen {
    let seen = Seen::default();
    for port in [80, 443, 8080] {
        let seen = Arc::clone(&seen);
        support::server(("::", port), move |mut stream: TcpStream| {
            let mut first = [0; 8];
            while stream.peek(&mut first).is_ok_and(|count| count > 0) {
                if first.starts_with(b"SSH-") || first.starts_with(b"PRI ") || first[0] == 22 {
                    seen.lock().unwrap().push("no HTTP".into());
                    return support::echo(stream);
                }
                let head = read_head(&mut stream);
                seen.lock().unwrap().push(head);
                if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_err() {
                    return;
                }
            }
        });
    }
    seen
}

fn world(case: &Agree) -> World {
    let world = World::with(case.rules.input().unwrap(), |config| {
        config.limits = Limits { hello_time: Duration::from_secs(5), ..Limits::default() };
    });
    let answers: Vec<IpAddr> = Agree::ANSWERS.iter().map(|text| text.parse().unwrap()).collect();
    world.answer_all(&answers);
    world
}

fn host(case: &Agree) -> Host {
    Host::parse(case.host).unwrap()
}

fn text(ask: &HttpQuestion, target: &str) -> String {
    let hosts = ask.hosts.iter().map(|host| format!("Host: {host}\r\n")).collect::<Vec<_>>().concat();
    let upgrade = if ask.upgrade { "Connection: Upgrade\r\nUpgrade: websocket\r\n" } else { "" };
    format!("{} {target} HTTP/1.1\r\n{hosts}{upgrade}\r\n", ask.method)
}

/// Sends each request and reads its answer; returns the code of the last one.
fn asked(stream: &mut TcpStream, asks: &[HttpQuestion], target: impl Fn(&HttpQuestion) -> String) -> String {
    for (at, ask) in asks.iter().enumerate() {
        // A denied redirection is a reset.
        if stream.write_all(text(ask, &target(ask)).as_bytes()).is_err() {
            return "reset".into();
        }
        let head = read_head(stream);
        match (field(&head, "x-proxy-error"), status(&head)) {
            (Some(code), status) => {
                assert_eq!(at + 1, asks.len(), "only the last is refused: {head}");
                let length = field(&head, "content-length").unwrap().parse().unwrap();
                if ask.method != "HEAD" {
                    stream.read_exact(&mut vec![0; length]).unwrap();
                }
                // What disagrees ends the connection; what is only not allowed need not.
                let ends = field(&head, "connection") == Some("close");
                assert!(ends || status == 403, "{head}");
                if ends {
                    assert_eq!(read_all(stream), Some(Vec::new()), "{head}");
                }
                return code.into();
            }
            (None, 200) => {}
            (None, _) => return "reset".into(),
        }
    }
    "OK".into()
}

/// Sends the bytes of the case on an open connection.
fn said(mut stream: TcpStream, first_bytes: FirstBytes) -> String {
    let bytes = match first_bytes {
        FirstBytes::Sni(name) => hello(name, None),
        FirstBytes::NoSni => hello("127.0.0.1", None),
        FirstBytes::Raw(bytes) => bytes.to_vec(),
        FirstBytes::Http(asks) => return asked(&mut stream, asks, |ask| ask.target.into()),
    };
    if stream.write_all(&bytes).is_err() {
        return "reset".into();
    }
    let mut back = vec![0; bytes.len()];
    match stream.read_exact(&mut back) {
        // Refused as HTTP; what was said has no such answer.
        Ok(()) if back.starts_with(b"HTTP/1.1 4") => {
            let head = read_head(&mut back.as_slice().chain(&mut stream));
            assert_eq!(field(&head, "connection"), Some("close"), "{head}");
            field(&head, "x-proxy-error").unwrap().into()
        }
        Ok(()) => {
            assert_eq!(back, bytes);
            "OK".into()
        }
        Err(_) => "reset".into(),
    }
}

fn decisive(event: &Event) -> bool {
    matches!(event.event, EventKind::Deny | EventKind::Cut)
}

/// Compares the result, the server's record and the audit with the table. Where no answer carries a code, the audit has
/// it.
fn evaluate(world: &World, seen: &Seen, case: &Agree, way: &str, got: &str, code: DenyCode) {
    let what = format!("{way}: {case:?}");
    let mut codes = vec![code.as_str().to_owned()];
    if code != DenyCode::Ok {
        codes.extend(["reset".to_owned(), code.socks_reply().to_string()]);
        eventually("the denial in the record", || world.events.all().iter().any(decisive));
    }
    assert!(codes.iter().any(|code| code == got), "{got} instead of one of {codes:?} by {what}");
    let events = world.events.take();
    let reported: Vec<DenyCode> = events.iter().filter(|event| decisive(event)).map(|event| event.code).collect();
    assert_eq!(reported, Vec::from_iter((code != DenyCode::Ok).then_some(code)), "{what}: {events:?}");
    let saw = std::mem::take(&mut *seen.lock().unwrap());
    let all = if let FirstBytes::Http(asks) = case.first_bytes { asks.len() } else { 1 };
    let passed = if code == DenyCode::Ok { all } else { all - 1 };
    // Where the connection itself is refused nothing gets there; else all but what was refused.
    let refused_whole = events.iter().all(|event| event.event != EventKind::Allow);
    assert_eq!(saw.len(), if refused_whole { 0 } else { passed }, "{what}: {saw:?}");
}

#[test]
fn what_is_said_by_connect_agrees_like_the_table() {
    if outside_of_netns() {
        return;
    }
    let seen = servers();
    for case in AGREE {
        let world = world(case);
        let got =
            enter::by_connect(&world, &case.authority()).map_or_else(|code| code, |to| said(to, case.first_bytes));
        evaluate(&world, &seen, case, "CONNECT", &got, case.expect);
    }
}

#[test]
fn what_is_said_by_socks_agrees_like_the_table() {
    if outside_of_netns() {
        return;
    }
    let seen = servers();
    let mut literals = 0;
    for case in AGREE {
        let first = world(case);
        let got = enter::by_socks(&first, 3, case.host.as_bytes(), case.port);
        evaluate(
            &first,
            &seen,
            case,
            "a SOCKS name",
            &got.map_or_else(|c| c, |to| said(to, case.first_bytes)),
            case.expect,
        );
        if let Host::Address(IpAddr::V4(address)) = host(case) {
            literals += 1;
            let world = world(case);
            let got = enter::by_socks(&world, 1, &address.octets(), case.port);
            let got = got.map_or_else(|code| code, |to| said(to, case.first_bytes));
            evaluate(&world, &seen, case, "a SOCKS address", &got, case.expect);
        }
    }
    assert!(literals > 5, "{literals}");
}

#[test]
fn what_is_said_on_a_redirected_connection_agrees_like_the_table() {
    if outside_of_netns() {
        return;
    }
    let seen = servers();
    for case in AGREE {
        let world = world(case);
        let address = match host(case) {
            Host::Address(address) => address,
            Host::Name(_) => match enter::by_dns(&world, &Name::from_ascii(case.host).unwrap()) {
                Ok(address) => address,
                Err(code) => {
                    assert_ne!(case.expect, DenyCode::Ok, "{code} for {case:?}");
                    continue;
                }
            },
        };
        world.events.take();
        let got = enter::by_transparent(&world, SocketAddr::new(address, case.port));
        let got = got.map_or_else(|code| code, |to| said(to, case.first_bytes));
        evaluate(&world, &seen, case, "a redirected connection", &got, case.expect);
    }
}

#[test]
fn absolute_requests_agree_like_the_table() {
    if outside_of_netns() {
        return;
    }
    let seen = servers();
    let mut tried = 0;
    for case in AGREE {
        let (FirstBytes::Http(asks), Some(code)) = (case.first_bytes, case.absolute) else { continue };
        let world = world(case);
        let authority = case.authority();
        let target = |ask: &HttpQuestion| match ask.target {
            path if path.starts_with('/') => format!("http://{authority}{path}"),
            whole => whole.into(),
        };
        // What disagrees with itself on the first request stays so on the later ones, which are then not sent.
        let asks = if code == case.expect { asks } else { &asks[asks.len() - 1..] };
        let got = asked(&mut connect(world.http), asks, target);
        evaluate(&world, &seen, &Agree { first_bytes: FirstBytes::Http(asks), ..*case }, "absolute HTTP", &got, code);
        tried += 1;
    }
    assert!(tried > 30, "{tried}");
}
