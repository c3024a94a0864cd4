//! One table of attacks on names and addresses, through every way in.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::Name;
use nexus_egress::{EventKind, SYNTHETIC_V4};
use nexus_policy::net::vectors::{CASES, Case, Expect};
use nexus_policy::net::{
    DISCOVERY_NAME, DenyCode, Host, MissingSni, MonotonicMs, PolicyInput, Port, Replay, Replayed, check_dns,
};
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use support::{World, connect, enter, field, outside_of_netns, read_all, read_head, status};

/// Result of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    /// Address of the server that answered, as the server saw it.
    Reached(SocketAddr),
    /// Refusal in the form of the way in.
    Refused(String),
}

fn expected(case: &Case) -> Result<Vec<SocketAddr>, DenyCode> {
    match case.expect {
        Expect::DenyUnasked(code) | Expect::DenyResolved(code) => Err(code),
        Expect::Allow => {
            let port = case.port.parse().unwrap();
            let addrs = match literal(case) {
                Some(address) => vec![address],
                None => case.addresses().unwrap(),
            };
            Ok(addrs.into_iter().map(|address| SocketAddr::new(address.to_canonical(), port)).collect())
        }
    }
}

/// Returns the address of a case whose host is one.
fn literal(case: &Case) -> Option<IpAddr> {
    let bare = case.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match Host::parse(bare.filter(|bare| bare.contains(':')).unwrap_or(case.host)) {
        Ok(Host::Address(address)) => Some(address),
        Ok(Host::Name(_)) | Err(_) => None,
    }
}

fn world(case: &Case) -> World {
    let input = case.rules.input().unwrap();
    // The clients of this test speak plain HTTP on every port.
    let world = World::of(PolicyInput { missing_sni: Some(MissingSni::Allow), ..input });
    world.answer_all(&case.addresses().unwrap());
    world
}

/// Starts a server on every address, which answers with the address that was dialled.
fn servers() {
    for port in [80, 443, 5432, 6379] {
        support::server(("::", port), |mut stream: TcpStream| {
            let head = read_head(&mut stream);
            if head.is_empty() {
                return;
            }
            let local = stream.local_addr().unwrap();
            let body = SocketAddr::new(local.ip().to_canonical(), local.port()).to_string();
            let length = body.len();
            // The egress may have gone meanwhile.
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").ok();
        });
    }
}

fn ask(mut stream: TcpStream) -> Got {
    if stream.write_all(b"GET / HTTP/1.0\r\n\r\n").is_err() {
        return Got::Refused("reset".into());
    }
    read_answer(&mut stream)
}

fn read_answer(stream: &mut TcpStream) -> Got {
    let head = read_head(stream);
    if let Some(code) = field(&head, "x-proxy-error") {
        return Got::Refused(code.into());
    }
    if status(&head) != 200 {
        return Got::Refused("reset".into());
    }
    Got::Reached(String::from_utf8(read_all(stream).unwrap()).unwrap().parse().unwrap())
}

fn by_connect(world: &World, case: &Case) -> Got {
    enter::by_connect(world, &case.authority()).map_or_else(Got::Refused, ask)
}

fn by_absolute(world: &World, case: &Case) -> Got {
    let mut stream = connect(world.http);
    let authority = case.authority();
    stream.write_all(format!("GET http://{authority}/ HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
    read_answer(&mut stream)
}

fn by_socks(world: &World, kind: u8, host: &[u8], port: u16) -> Got {
    enter::by_socks(world, kind, host, port).map_or_else(Got::Refused, ask)
}

fn by_transparent(world: &World, to: SocketAddr) -> Got {
    enter::by_transparent(world, to).map_or_else(Got::Refused, ask)
}

/// Compares the result, the record and the questions to the resolver with the table.
fn evaluate(world: &World, case: &Case, way: &str, got: &Got, reported: impl Fn(DenyCode) -> String) {
    let what = format!("{} by {way}: {:?} with {:?}", case.id, case.authority(), case.answers);
    let mut asked = world.take_asked();
    // The question about NAT64 comes once for each network, whatever is asked for.
    asked.retain(|name| name != DISCOVERY_NAME);
    match (expected(case), got) {
        (Ok(addrs), Got::Reached(reached)) => assert!(addrs.contains(reached), "{what}: reached {reached}"),
        (Err(code), Got::Refused(refused)) => assert_eq!(*refused, reported(code), "{what}"),
        (expected, got) => panic!("{what}: expected {expected:?}, got {got:?}"),
    }
    let events = world.events.take();
    let decided = events.iter().find(|event| matches!(event.event, EventKind::Allow | EventKind::Deny)).unwrap();
    assert_eq!(decided.code, expected(case).err().unwrap_or(DenyCode::Ok), "{what}: {events:?}");
    if let Ok(addrs) = expected(case) {
        let wanted: Vec<IpAddr> = addrs.iter().map(SocketAddr::ip).collect();
        assert_eq!(decided.addresses, wanted, "{what}");
    }
    // A replay of the record alone gives the same decision.
    let mut replay = Replay::default();
    let replayed: Vec<Replayed> = world.events.lines().iter().map(|line| replay.line(line).unwrap()).collect();
    let readable = expected(case).err() != Some(DenyCode::InvalidDestination);
    assert_eq!(replayed.contains(&Replayed::Same), readable, "{what}: {events:?}");
    let resolves = literal(case).is_none() && !matches!(case.expect, Expect::DenyUnasked(_));
    assert_eq!(asked.len(), usize::from(resolves), "{what}: the resolver was asked {asked:?}");
}

/// Reports whether the host is in the range that the stub gives to names (RFC 2544). By CONNECT and SOCKS such an
/// address is its name, or none.
fn is_of_the_stub(case: &Case) -> bool {
    case.host.starts_with("198.18.") || case.host.starts_with("198.19.")
}

#[test]
fn connect_decides_like_the_table() {
    if outside_of_netns() {
        return;
    }
    servers();
    // A request line is ASCII, so other texts are not a destination here.
    for case in CASES.iter().filter(|case| case.host.is_ascii() && !is_of_the_stub(case)) {
        let world = world(case);
        let got = by_connect(&world, case);
        evaluate(&world, case, "CONNECT", &got, |code| code.as_str().into());
    }
}

#[test]
fn absolute_http_decides_like_the_table() {
    if outside_of_netns() {
        return;
    }
    servers();
    // A slash ends the host in a URL.
    for case in CASES.iter().filter(|case| case.host.is_ascii() && !case.host.contains('/')) {
        let world = world(case);
        let got = by_absolute(&world, case);
        evaluate(&world, case, "absolute HTTP", &got, |code| code.as_str().into());
    }
}

#[test]
fn socks_names_decide_like_the_table() {
    if outside_of_netns() {
        return;
    }
    servers();
    for case in CASES.iter().filter(|case| !is_of_the_stub(case)) {
        let Ok(port) = case.port.parse::<u16>() else { continue };
        if case.port != port.to_string() {
            continue;
        }
        let world = world(case);
        // Without the brackets: SOCKS has no place for them.
        let bare = case.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.filter(|bare| bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6())).unwrap_or(case.host);
        let got = by_socks(&world, 3, host.as_bytes(), port);
        evaluate(&world, case, "a SOCKS name", &got, |code| code.socks_reply().to_string());
    }
}

#[test]
fn socks_literals_decide_like_the_table() {
    if outside_of_netns() {
        return;
    }
    servers();
    let mut tried = 0;
    for case in CASES.iter().filter(|case| !is_of_the_stub(case)) {
        let Some(address) = literal(case) else { continue };
        let Ok(port) = Port::parse(case.port) else { continue };
        let world = world(case);
        let got = match address {
            IpAddr::V4(address) => by_socks(&world, 1, &address.octets(), port.number()),
            IpAddr::V6(address) => by_socks(&world, 4, &address.octets(), port.number()),
        };
        evaluate(&world, case, "a SOCKS address", &got, |code| code.socks_reply().to_string());
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn redirected_literals_decide_like_the_table() {
    if outside_of_netns() {
        return;
    }
    servers();
    for case in CASES {
        let (Some(address), Ok(port)) = (literal(case), Port::parse(case.port)) else { continue };
        // The synthetic range is not reachable as itself; its own test is in dns.rs.
        if address.to_string().starts_with("198.1") {
            continue;
        }
        let world = world(case);
        let got = by_transparent(&world, SocketAddr::new(address, port.number()));
        evaluate(&world, case, "a redirected address", &got, |_| "reset".into());
    }
}

#[test]
fn redirected_names_and_dns_decide_like_the_table() {
    if outside_of_netns() {
        return;
    }
    servers();
    for case in CASES {
        if literal(case).is_some() || !case.host.is_ascii() || case.host.bytes().any(|byte| byte < 0x21) {
            continue;
        }
        // A text that is not a DNS name at all cannot be asked for.
        let Ok(name) = Name::from_ascii(case.host) else { continue };
        let world = world(case);
        let answered = enter::by_dns(&world, &name);
        assert_eq!(world.take_asked(), [] as [&str; 0], "{case:?}");
        let event = world.events.take().remove(0);
        assert_eq!(event.event, EventKind::Dns);
        let Ok(port) = Port::parse(case.port) else { continue };
        match (case.expect, answered) {
            (Expect::Allow | Expect::DenyResolved(_), Ok(address)) => {
                assert!(matches!(address, IpAddr::V4(v4) if v4.octets()[..2] == SYNTHETIC_V4.0.octets()[..2]));
                assert_eq!(event.code, DenyCode::Ok);
                let got = by_transparent(&world, SocketAddr::new(address, port.number()));
                evaluate(&world, case, "a redirected name", &got, |_| "reset".into());
            }
            // Allowed on another port, or denied on this one only: the name is answered, the connection is not.
            (Expect::DenyUnasked(DenyCode::PortNotAllowed | DenyCode::NotInAllowlist), Ok(address)) => {
                let policy = case.rules.policy().unwrap();
                let somewhere = check_dns(&policy, &Host::parse(case.host).unwrap(), MonotonicMs::default());
                assert!(somewhere.is_ok(), "{case:?}: no port of it could be reached, and it was answered");
                let got = by_transparent(&world, SocketAddr::new(address, port.number()));
                evaluate(&world, case, "a redirected name", &got, |_| "reset".into());
            }
            (Expect::DenyUnasked(_), Err(code)) => {
                assert_eq!(code, ResponseCode::NXDomain, "{case:?}");
                assert_ne!(event.code, DenyCode::Ok, "{case:?}");
            }
            (expect, answered) => panic!("{case:?}: expected {expect:?}, got {answered:?}"),
        }
    }
}
