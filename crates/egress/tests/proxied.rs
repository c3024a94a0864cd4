//! What an upstream proxy never gets: its own address, this host, and its login in a request whose answer goes inside.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, OwnAddresses, UpstreamProxy};
use nexus_policy::net::{PolicyInput, Source, parse_allow};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{World, connect, input, read_head, response, server, tunnel};

/// Says that 11.22.33.44 is this host.
struct OneAddress;

impl OwnAddresses for OneAddress {
    fn is_own(&self, to: SocketAddr) -> io::Result<bool> {
        Ok(to.ip() == IpAddr::from([11, 22, 33, 44]))
    }

    fn changes(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// An open network by a proxy that connects anybody to a server, and the connections that the proxy was asked for.
fn open_by_proxy(proxy: &str, more: &[&str]) -> World {
    let mode = Some(nexus_model::capability::NetMode::Unrestricted);
    let rules = PolicyInput { upstream_proxy: true, mode, ..input(more) };
    World::with(rules, |config| {
        config.own_addresses = Some(Arc::new(OneAddress));
        config.upstream_proxy = Some(UpstreamProxy::parse(&format!("http://{proxy}")).unwrap());
    })
}

fn counting_proxy(asked: &Arc<AtomicUsize>) -> SocketAddr {
    let asked = Arc::clone(asked);
    server("127.0.0.1:0", move |mut stream| {
        read_head(&mut stream);
        asked.fetch_add(1, Ordering::Relaxed);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    })
}

#[test]
fn no_name_or_address_leads_through_the_proxy_to_this_host() {
    let asked = Arc::default();
    let proxy = counting_proxy(&asked);
    let world = open_by_proxy(&proxy.to_string(), &["-93.184.216.35", "+listed.test:1-65535"]);
    for (name, address) in [
        ("lo.test", [127, 0, 0, 1]),
        ("priv.test", [10, 77, 0, 5]),
        ("own.test", [11, 22, 33, 44]),
        ("denied.test", [93, 184, 216, 35]),
    ] {
        world.resolver.set(name, &[address.into()]);
    }
    for host in ["localhost", "x.localhost", "lo.test", "priv.test", "own.test", "denied.test"] {
        assert_eq!(tunnel(world.http, &format!("{host}:6000")).unwrap_err().0, 403, "{host}");
    }
    for host in ["11.22.33.44", "127.0.0.1", "93.184.216.35"] {
        assert_eq!(tunnel(world.http, &format!("{host}:6000")).unwrap_err().0, 403, "{host}");
    }
    // One of too many may be this host.
    let many: Vec<IpAddr> = (0..65).map(|last| IpAddr::from([93, 184, 216, last])).collect();
    for name in ["many.test", "listed.test"] {
        world.resolver.set(name, &many);
        let (code, _, body) = tunnel(world.http, &format!("{name}:6000")).unwrap_err();
        assert!(code == 502 && String::from_utf8(body).unwrap().contains("more than 64 addresses"), "{name}");
    }
    // What has no address here is for a proxy on this host to reach by a rule alone.
    assert_eq!(tunnel(world.http, "unknown.test:6000").unwrap_err().0, 502);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    world.resolver.set("listed.test", &[]);
    world.resolver.set("public.test", &[[93, 184, 216, 34].into()]);
    for host in ["public.test", "listed.test", "93.184.216.34"] {
        assert!(tunnel(world.http, &format!("{host}:6000")).is_ok(), "{host}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[test]
fn the_upstream_proxy_itself_is_no_destination() {
    let asked = Arc::default();
    let proxy = counting_proxy(&asked);
    let port = proxy.port();
    let private = format!("+127.0.0.0/8:{port}");
    let world = open_by_proxy(&format!("proxy.test:{port}"), &[&private, &format!("+alias.test:{port}")]);
    for name in ["proxy.test", "alias.test"] {
        world.resolver.set(name, &[proxy.ip()]);
    }
    world.resolver.set("own.test", &[[11, 22, 33, 44].into()]);
    for host in ["proxy.test", "PROXY.test.", "alias.test", "127.0.0.1", "127.0.0.2", "localhost", "own.test"] {
        assert_eq!(tunnel(world.http, &format!("{host}:{port}")).unwrap_err().0, 403, "{host}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // The same for a proxy elsewhere, which is told by its address.
    world.resolver.set("proxy.test", &[[93, 184, 216, 34].into()]);
    world.resolver.set("alias.test", &[[93, 184, 216, 34].into()]);
    for host in ["alias.test", "93.184.216.34"] {
        let (status, _, body) = tunnel(world.http, &format!("{host}:{port}")).unwrap_err();
        assert_eq!(status, 403, "{host}");
        assert!(String::from_utf8(body).unwrap().contains("is the upstream proxy itself"), "{host}");
    }
    let denied = world.events.all().into_iter().filter(|event| event.event == EventKind::Deny).count();
    assert_eq!(denied, 9);
}

/// A proxy whose errors repeat the head that it got, as squid's pages do.
fn repeating_proxy() -> SocketAddr {
    server("127.0.0.1:0", |mut stream| {
        let head = read_head(&mut stream);
        let answer = format!("HTTP/1.1 503 No\r\nContent-Length: {}\r\n\r\n{head}", head.len());
        stream.write_all(answer.as_bytes()).unwrap();
    })
}

/// What the inside gets back for a request on port 80 through a proxy at `url`.
fn told_by_proxy(url: &str, request: &str) -> (u16, String) {
    let rules = PolicyInput { upstream_proxy: true, ..input(&["one.test:80"]) };
    let world = World::with(rules, |config| config.upstream_proxy = Some(UpstreamProxy::parse(url).unwrap()));
    let mut client = connect(world.http);
    client.write_all(request.as_bytes()).unwrap();
    let (status, head, body) = response(&mut client);
    (status, head + &String::from_utf8(body).unwrap())
}

#[test]
fn an_answer_of_the_upstream_proxy_never_shows_its_login() {
    let proxy = repeating_proxy();
    for method in ["GET", "TRACE"] {
        let request = format!("{method} http://one.test/ HTTP/1.1\r\nHost: one.test\r\nMax-Forwards: 0\r\n\r\n");
        let (status, told) = told_by_proxy(&format!("http://u:p@{proxy}"), &request);
        assert_eq!(status, 502, "{method}: {told}");
        assert!(!told.contains("dTpw") && !told.to_lowercase().contains("proxy-authorization"), "{method}: {told}");
    }
}

#[test]
fn a_request_to_a_proxy_cannot_be_answered_with_itself() {
    let url = format!("http://{}", repeating_proxy());
    let fields = "Host: one.test\r\nMAX-Forwards: 0\r\nX: y\r\n\r\n";
    let (status, told) = told_by_proxy(&url, &format!("OPTIONS http://one.test/ HTTP/1.1\r\n{fields}"));
    assert_eq!(status, 503, "{told}");
    assert!(told.contains("OPTIONS http://one.test/ HTTP/1.1\r\n") && told.contains("\r\nX: y\r\n\r\n"), "{told}");
    assert!(!told.to_lowercase().contains("max-forwards"), "{told}");
    let (status, told) = told_by_proxy(&url, &format!("TRACE http://one.test/ HTTP/1.1\r\n{fields}"));
    assert_eq!(status, 400, "{told}");
    assert!(told.contains("TRACE is not passed on to an upstream proxy"), "{told}");
}

/// Knows two names, and answers no question about others.
struct Silent;

impl nexus_egress::Resolver for Silent {
    fn lookup<'a>(&'a self, name: &'a nexus_policy::net::Name) -> nexus_egress::Lookup<'a> {
        let addrs = match name.as_str() {
            "lo.test" => Some(IpAddr::from([127, 0, 0, 1])),
            "public.test" => Some(IpAddr::from([93, 184, 216, 34])),
            _ => None,
        };
        Box::pin(async move {
            let Some(address) = addrs else { return std::future::pending().await };
            Ok(nexus_egress::Resolved { addrs: vec![address], ttl_s: None })
        })
    }
}

#[test]
fn a_silent_resolver_is_waited_for_once() {
    const LIMIT: Duration = Duration::from_secs(2);
    let asked = Arc::default();
    let proxy = counting_proxy(&asked);
    let mut rules = PolicyInput { upstream_proxy: true, ..input(&[]) };
    rules.allow.push(parse_allow("*.unknown.test:6000", Source::flag("listed")).unwrap());
    rules.allow.push(parse_allow("lo.test:6000", Source::flag("listed")).unwrap());
    let world = World::with(rules, |config| {
        config.own_addresses = Some(Arc::new(OneAddress));
        config.upstream_proxy = Some(UpstreamProxy::parse(&format!("http://{proxy}")).unwrap());
        config.resolver = Arc::new(Silent);
        config.limits.resolve_time = LIMIT;
    });
    let begun = Instant::now();
    for number in 0..6 {
        assert!(tunnel(world.http, &format!("x{number}.unknown.test:6000")).is_ok());
    }
    let took = begun.elapsed();
    assert!(took >= LIMIT && took < LIMIT * 5, "{took:?}: one full wait, and five short ones");
    // What the resolver does say still counts.
    assert_eq!(tunnel(world.http, "lo.test:6000").unwrap_err().0, 403);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}
