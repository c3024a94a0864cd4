//! Requests that an upstream proxy never gets: for its own address, for this host, or with its login if the answer goes
//! inside.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, Lookup, OwnAddresses, ResolveError, Resolved, Resolver, UpstreamProxy};
use nexus_policy::net::{Name, PolicyInput};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{World, connect, input, read_head, response, server, tunnel};

/// Source of own addresses with 11.22.33.44 alone.
struct OneAddress;

impl OwnAddresses for OneAddress {
    fn is_own(&self, to: SocketAddr) -> io::Result<bool> {
        Ok(to.ip() == IpAddr::from([11, 22, 33, 44]))
    }

    fn changes(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// Creates an open network behind `proxy`, with the rules `more`.
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
    // The same for a proxy elsewhere, which is identified by its address.
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

/// Starts a proxy whose errors repeat the head that it got, as squid's pages do.
fn repeating_proxy() -> SocketAddr {
    server("127.0.0.1:0", |mut stream| {
        let head = read_head(&mut stream);
        let answer = format!("HTTP/1.1 503 No\r\nContent-Length: {}\r\n\r\n{head}", head.len());
        stream.write_all(answer.as_bytes()).unwrap();
    })
}

/// Returns the answer that the inside gets for a request on port 80 through a proxy at `url`.
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
        let (status, reported) = told_by_proxy(&format!("http://u:p@{proxy}"), &request);
        assert_eq!(status, 502, "{method}: {reported}");
        assert!(
            !reported.contains("dTpw") && !reported.to_lowercase().contains("proxy-authorization"),
            "{method}: {reported}"
        );
    }
}

#[test]
fn a_request_to_a_proxy_cannot_be_answered_with_itself() {
    let url = format!("http://{}", repeating_proxy());
    let fields = "Host: one.test\r\nMAX-Forwards: 0\r\nX: y\r\n\r\n";
    let (status, reported) = told_by_proxy(&url, &format!("OPTIONS http://one.test/ HTTP/1.1\r\n{fields}"));
    assert_eq!(status, 503, "{reported}");
    assert!(
        reported.contains("OPTIONS http://one.test/ HTTP/1.1\r\n") && reported.contains("\r\nX: y\r\n\r\n"),
        "{reported}"
    );
    assert!(!reported.to_lowercase().contains("max-forwards"), "{reported}");
    // Some proxies read a method in any case.
    for method in ["TRACE", "Trace", "tRACE"] {
        let (status, reported) = told_by_proxy(&url, &format!("{method} http://one.test/ HTTP/1.1\r\n{fields}"));
        assert_eq!(status, 400, "{reported}");
        assert!(reported.contains("TRACE is not passed on to an upstream proxy"), "{reported}");
    }
}

#[test]
fn connect_in_another_case_is_not_passed_on() {
    let url = format!("http://{}", repeating_proxy());
    for method in ["connect", "Connect", "cONNECT"] {
        for target in ["http://one.test/", "one.test:80"] {
            let (status, reported) =
                told_by_proxy(&url, &format!("{method} {target} HTTP/1.1\r\nHost: one.test\r\n\r\n"));
            assert_eq!(status, 400, "{reported}");
            assert!(reported.contains("CONNECT is written in capitals"), "{reported}");
        }
    }
}

/// Resolver whose answer depends on the first label of the name. It counts the look-ups at one time.
#[derive(Default)]
struct Labelled {
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Resolver for Labelled {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let over = Over(&self.at_once);
        Box::pin(async move {
            let found = |address: [u8; 4]| Resolved { addrs: vec![address.into()], ..Resolved::default() };
            let (about, why) = (name.to_string(), "as the test wants it".to_owned());
            let answer = match name.as_str().split('.').next().unwrap_or_default() {
                "public" => Ok(found([93, 184, 216, 34])),
                "slow" => {
                    tokio::time::sleep(SLOW).await;
                    Ok(found([10, 77, 0, 5]))
                }
                "half" => {
                    let partial = Some(ResolveError::Local { name: about, why });
                    Ok(Resolved { partial, ..found([93, 184, 216, 34]) })
                }
                "fails" => Err(ResolveError::Failed { name: about, why }),
                "local" => Err(ResolveError::Local { name: about, why }),
                "unset" => Err(ResolveError::Configuration { why }),
                _ => std::future::pending().await,
            };
            drop(over);
            answer
        })
    }
}

/// Guard of a look-up: subtracts it from the count when it ends or is given up.
struct Over<'a>(&'a AtomicUsize);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Duration of a look-up: more than a tenth of its limit.
const SLOW: Duration = Duration::from_millis(800);
const LIMIT: Duration = Duration::from_secs(3);

/// A list of these names by a proxy that connects anybody to a server, with that resolver.
fn labelled(names: &[&str], look_ups: usize) -> (World, Arc<AtomicUsize>, Arc<Labelled>) {
    let (asked, resolver) = (Arc::default(), Arc::<Labelled>::default());
    let proxy = counting_proxy(&asked);
    let rules = PolicyInput { upstream_proxy: true, ..input(names) };
    let world = World::with(rules, |config| {
        config.upstream_proxy = Some(UpstreamProxy::parse(&format!("http://{proxy}")).unwrap());
        config.resolver = resolver.clone();
        config.limits.resolve_time = LIMIT;
        config.limits.look_ups = look_ups;
    });
    (world, asked, resolver)
}

#[test]
fn one_silent_name_shortens_no_wait_for_another() {
    let (world, asked, _) = labelled(&["silent.test:6000", "*.x.test:6000"], 8);
    let started = Instant::now();
    // A name that the user wrote goes on, since behind such a proxy there may be no name server. It is waited for once.
    for _ in 0..4 {
        assert!(tunnel(world.http, "silent.test:6000").is_ok());
    }
    let took = started.elapsed();
    assert!(took >= LIMIT && took < LIMIT * 2, "{took:?}: one full wait, and three short ones");
    // One that the program inside chose does not, and another name is waited for as before.
    for name in ["silent.x.test", "slow.x.test"] {
        let (_, _, body) = tunnel(world.http, &format!("{name}:6000")).unwrap_err();
        let body = String::from_utf8(body).unwrap();
        let wanted = if name == "slow.x.test" { "leads to 10.77.0.5" } else { "only by a rule for exactly that name" };
        assert!(body.contains(wanted), "{body}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}

#[test]
fn an_error_of_this_host_is_no_unknown_name() {
    let exact = ["public.test:6000", "fails.test:6000", "local.test:6000", "unset.test:6000", "half.test:6000"];
    let rules = [&exact[..], &["*.x.test:6000", "+*.p.test:6000"]].concat();
    let (world, asked, _) = labelled(&rules, 8);
    for below in ["test", "x.test", "p.test"] {
        for (label, code) in [("local", 502), ("unset", 502), ("half", 502), ("fails", 200), ("public", 200)] {
            let opened = tunnel(world.http, &format!("{label}.{below}:6000")).map_err(|refused| refused.0);
            assert_eq!(opened.err().unwrap_or(200), code, "{label}.{below}");
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

#[test]
fn look_ups_at_one_time_are_bounded_and_the_rest_is_refused() {
    let (world, asked, resolver) = labelled(&["*.x.test:6000"], 4);
    let http = world.http;
    let ask = move |number: usize| tunnel(http, &format!("silent{number}.x.test:6000")).unwrap_err().0;
    let clients: Vec<_> = (0..24).map(|number| std::thread::spawn(move || ask(number))).collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), 502);
    }
    assert_eq!(resolver.most_at_once.load(Ordering::SeqCst), 3, "one is kept for names that a rule writes out");
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    // The places are free again.
    assert!(tunnel(http, "public.x.test:6000").is_ok());
}
