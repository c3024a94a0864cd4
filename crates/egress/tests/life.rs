//! Reload, expiry, a failing audit, an upstream proxy, and the end.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::rr::Name;
use nexus_egress::{
    Answer, Approver, Asked, Clock, Config, Egress, EventKind, FileSink, Limits, Listeners, ReloadError, Scripted,
    StartError, UpstreamProxy,
};
use nexus_policy::net::{Attempt, Budget, Denial, DenyCode, Policy, PolicyInput, Source, parse_allow_private};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{World, connect, echo, enter, eventually, field, input, policy, read_all, read_head, server, tunnel};

fn round_trip(stream: &mut TcpStream) -> bool {
    let mut back = [0; 4];
    stream.write_all(b"ping").is_ok() && stream.read_exact(&mut back).is_ok() && &back == b"ping"
}

fn two_names(upstream: SocketAddr) -> [String; 2] {
    ["one.test", "two.test"].map(|name| format!("{name}:{}", upstream.port()))
}

fn world(upstream: SocketAddr) -> World {
    let [one, two] = two_names(upstream);
    let world = World::of(input(&[&format!("+{one}"), &format!("+{two}")]));
    world.resolver.set("*", &[upstream.ip()]);
    world
}

#[test]
fn a_reload_cuts_what_the_new_policy_forbids_and_nothing_else() {
    let upstream = server("127.0.0.1:0", echo);
    let world = world(upstream);
    let [one, two] = two_names(upstream);
    let mut stays = tunnel(world.http, &one).unwrap();
    let mut goes = tunnel(world.http, &two).unwrap();
    assert!(round_trip(&mut stays) && round_trip(&mut goes));
    let next = policy(PolicyInput { generation: 2, ..input(&[&format!("+{one}")]) });
    assert_eq!(world.egress().reload(next.clone()), Ok(1));
    assert_eq!(read_all(&mut goes), None, "a reset");
    assert!(round_trip(&mut stays));
    let (code, head, _) = tunnel(world.http, &two).unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("NOT_IN_ALLOWLIST")));
    eventually("the cut in the record", || world.events.has(EventKind::Cut));
    // The same again is nothing; older, or other content under the same number, is refused and changes nothing.
    assert_eq!(world.egress().reload(next), Ok(0));
    let older = policy(input(&[]));
    assert_eq!(world.egress().reload(older), Err(ReloadError::Older { present: 2, offered: 1 }));
    let other = policy(PolicyInput { generation: 2, ..input(&[]) });
    assert_eq!(world.egress().reload(other), Err(ReloadError::Differs { generation: 2 }));
    assert!(round_trip(&mut stays));
}

#[test]
fn a_kept_server_connection_is_cut_by_a_reload_too() {
    let (closed, seen) = std::sync::mpsc::channel();
    let upstream = server("127.0.0.1:0", move |mut stream| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        let end = stream.read(&mut [0]);
        closed.send(end.is_err()).unwrap();
    });
    let world = world(upstream);
    let [one, _] = two_names(upstream);
    let mut client = connect(world.http);
    write!(client, "GET http://{one}/ HTTP/1.1\r\nHost: {one}\r\n\r\n").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 204"));
    eventually("one open connection", || world.egress().summary().open == 1);
    assert_eq!(world.egress().reload(policy(PolicyInput { generation: 2, ..input(&[]) })), Ok(1));
    assert!(seen.recv_timeout(support::TIMEOUT).unwrap(), "a reset");
    write!(client, "GET http://{one}/ HTTP/1.1\r\nHost: {one}\r\n\r\n").unwrap();
    assert!(read_head(&mut client).starts_with("HTTP/1.1 403"));
}

#[test]
fn a_policy_that_expires_ends_its_connections() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let clock = Clock::start();
    let expires = Some(clock.now().plus_ms(2000));
    let world = World::with(PolicyInput { expires, ..input(&[&format!("+{one}")]) }, |config| config.clock = clock);
    world.resolver.set("*", &[upstream.ip()]);
    let mut client = tunnel(world.http, &one).unwrap();
    assert!(round_trip(&mut client));
    assert_eq!(read_all(&mut client), None, "a reset");
    let (code, head, _) = tunnel(world.http, &one).unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (403, Some("POLICY_EXPIRED")));
}

#[test]
fn a_later_policy_that_ends_sooner_or_not_at_all_decides_when_connections_end() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let clock = Clock::start();
    let policy = |generation, expires| {
        let input = PolicyInput { expires, generation, ..input(&[&format!("+{one}")]) };
        std::sync::Arc::new(nexus_policy::net::Policy::build(input).unwrap())
    };
    let limits = Limits { half_closed: Duration::from_millis(100), ..Limits::default() };
    let soon = clock.now().plus_ms(2000);
    let world = World::with(PolicyInput { expires: Some(soon), ..input(&[&format!("+{one}")]) }, |config| {
        config.clock = clock;
        config.limits = limits;
    });
    world.resolver.set("*", &[upstream.ip()]);
    let mut client = tunnel(world.http, &one).unwrap();
    world.egress().reload(policy(50, None)).unwrap();
    while clock.now() < soon.plus_ms(300) {
        assert!(round_trip(&mut client), "it goes on under a policy without an end");
    }
    world.egress().reload(policy(51, Some(clock.now().plus_ms(500)))).unwrap();
    assert_eq!(read_all(&mut client), None, "a reset");
}

#[test]
fn a_busy_tunnel_comes_to_its_end_and_lets_others_run() {
    const BYTES: usize = 64 << 20;
    let upstream = server("127.0.0.1:0", |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        let block = vec![7; 1 << 20];
        // Until the reader has enough.
        while stream.write_all(&block).is_ok() {}
    });
    let echoes = server("127.0.0.1:0", echo);
    let world = World::of(input(&["+one.test:1-65535"]));
    world.resolver.set("*", &[upstream.ip()]);
    let mut bulk = tunnel(world.http, &format!("one.test:{}", upstream.port())).unwrap();
    bulk.write_all(b"x").unwrap();
    let reader = std::thread::spawn(move || {
        let (mut got, mut buffer) = (0, vec![0; 1 << 20]);
        while got < BYTES {
            let count = bulk.read(&mut buffer).unwrap();
            assert_ne!(count, 0);
            got += count;
        }
    });
    let mut other = tunnel(world.http, &format!("one.test:{}", echoes.port())).unwrap();
    while !reader.is_finished() {
        assert!(round_trip(&mut other));
    }
    reader.join().unwrap();
}

#[test]
fn an_idle_tunnel_ends_and_a_busy_one_does_not() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let limits = Limits { idle: Duration::from_millis(400), ..Limits::default() };
    let world = World::with(input(&[&format!("+{one}")]), |config| config.limits = limits);
    world.resolver.set("*", &[upstream.ip()]);
    let mut idle = tunnel(world.http, &one).unwrap();
    let mut busy = tunnel(world.http, &one).unwrap();
    let idle = std::thread::spawn(move || read_all(&mut idle));
    while !idle.is_finished() {
        assert!(round_trip(&mut busy));
    }
    assert_eq!(idle.join().unwrap(), None, "a reset");
    assert!(round_trip(&mut busy));
    // The record says who ended it.
    eventually("the cut in the record", || world.events.has(EventKind::Cut));
    let cut = world.events.take().into_iter().find(|event| event.event == EventKind::Cut).unwrap();
    assert_eq!(cut.explanation.as_deref(), Some("nothing came or went for 0 s"));
}

/// Reads the timers in the kernel's table of connections: 02 is a keepalive.
#[test]
fn a_silent_connection_is_kept_alive_towards_the_server() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let world = world(upstream);
    let mut client = tunnel(world.http, &one).unwrap();
    assert!(round_trip(&mut client));
    let to = format!(" 0100007F:{:04X} 01 ", upstream.port());
    let timer = || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let line = table.lines().find(|line| line.contains(&to));
        line.and_then(|line| line.split_whitespace().nth(5)).map(|timer| timer[..2].to_owned())
    };
    eventually("a keepalive timer", || timer().as_deref() == Some("02"));
}

#[test]
fn nothing_is_connected_while_the_audit_takes_nothing() {
    let (came, seen) = std::sync::mpsc::channel();
    let upstream = server("127.0.0.1:0", move |stream| {
        came.send(()).unwrap();
        echo(stream);
    });
    let world = world(upstream);
    let [one, _] = two_names(upstream);
    let mut before = tunnel(world.http, &one).unwrap();
    seen.recv().unwrap();
    world.events.fail(true);
    let (code, head, body) = tunnel(world.http, &one).unwrap_err();
    assert_eq!((code, field(&head, "x-proxy-error")), (500, Some("INTERNAL_ERROR")));
    assert!(String::from_utf8(body).unwrap().contains("audit log cannot be written"));
    assert!(seen.try_recv().is_err(), "the server saw a connection that is in no record");
    assert!(round_trip(&mut before), "what is in the record goes on");
    assert!(world.egress().summary().audit_lost > 0);
    world.events.fail(false);
    assert!(round_trip(&mut tunnel(world.http, &one).unwrap()));
}

/// A question for a name that the program inside chose can carry data.
#[test]
fn no_name_is_looked_up_that_is_not_recorded_and_paid() {
    let upstream = server("127.0.0.1:0", echo);
    let rules = |budget| PolicyInput { budget, ..input(&["+*.w.test:1-65535", "+one.test:1-65535"]) };
    let secret = |n: u32| format!("secret-{n}.w.test:{}", upstream.port());
    let world = World::of(rules(Budget::default()));
    world.resolver.set("*", &[upstream.ip()]);
    world.events.fail(true);
    for n in 0..5 {
        assert_eq!(tunnel(world.http, &secret(n)).unwrap_err().0, 500);
    }
    assert_eq!(world.resolver.take_asked(), [] as [&str; 0]);
    world.events.fail(false);
    assert!(tunnel(world.http, &secret(9)).is_ok());
    let kinds = |world: &World| world.events.take().iter().map(|event| event.event).collect::<Vec<_>>();
    assert_eq!(kinds(&world)[..2], [EventKind::Resolve, EventKind::Allow]);
    assert!(tunnel(world.http, &format!("one.test:{}", upstream.port())).is_ok());
    assert!(!kinds(&world).contains(&EventKind::Resolve), "a name of a rule carries nothing");

    // A name without an address is not a connection, and costs one all the same.
    for (budget, allowed) in [
        (Budget { connections: Some(3), ..Budget::default() }, 3),
        (Budget { bytes_total: Some(40), ..Budget::default() }, 2),
    ] {
        let world = World::of(rules(budget));
        for n in 0..9 {
            let (status, ..) = tunnel(world.http, &secret(n)).unwrap_err();
            assert_eq!(status, if n < allowed { 502 } else { 429 }, "{n}");
        }
        assert_eq!(world.resolver.take_asked().len(), allowed as usize);
        assert_eq!(world.egress().summary().open, 0);
    }
    // None of them is open.
    let world = World::of(rules(Budget { open_connections: Some(1), ..Budget::default() }));
    for n in 0..3 {
        assert_eq!(tunnel(world.http, &secret(n)).unwrap_err().0, 502);
    }
}

#[test]
fn a_full_disk_stops_new_connections_and_says_so() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let full = Arc::new(FileSink::new(OpenOptions::new().write(true).open("/dev/full").unwrap(), u64::MAX));
    let world = World::with(input(&[&format!("+{one}")]), |config| config.audit = full);
    world.resolver.set("*", &[upstream.ip()]);
    let (code, _, body) = tunnel(world.http, &one).unwrap_err();
    let body = String::from_utf8(body).unwrap();
    assert!(code == 500 && body.contains("No space left on device"), "{code} {body}");
}

#[test]
fn a_log_that_reached_its_bound_stops_new_connections() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let file = tempfile::NamedTempFile::new().unwrap();
    let sink = Arc::new(FileSink::new(file.reopen().unwrap(), 2500));
    let world = World::with(input(&[&format!("+{one}")]), |config| config.audit = sink);
    world.resolver.set("*", &[upstream.ip()]);
    assert!(tunnel(world.http, &one).is_ok());
    eventually("the bound", || tunnel(world.http, &one).is_err_and(|(code, ..)| code == 500));
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert!(text.len() <= 2500 && text.ends_with('\n'));
    // The first one is the policy.
    for line in text.lines().skip(1) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["v"], &line["host"]), (&1.into(), &"one.test".into()));
    }
}

#[test]
fn a_stop_closes_every_listener_and_connection() {
    let upstream = server("127.0.0.1:0", echo);
    let mut world = world(upstream);
    let [one, _] = two_names(upstream);
    let mut open: Vec<TcpStream> = (0..20).map(|_| tunnel(world.http, &one).unwrap()).collect();
    assert!(open.iter_mut().all(round_trip));
    assert!(world.egress().is_running());
    let summary = world.egress.take().unwrap().stop().unwrap();
    assert_eq!((summary.allowed_count, summary.allowed[0].connections, summary.open), (20, 20, 0));
    assert_eq!((summary.bytes_up, summary.bytes_down), (80, 80));
    for mut stream in open {
        assert!(read_all(&mut stream).is_none_or(|rest| rest.is_empty()));
    }
    for address in [world.http, world.socks, world.transparent, world.dns_tcp] {
        assert!(support::try_connect(address).is_err(), "{address}");
    }
    let closes = world.events.all().iter().filter(|event| event.event == EventKind::Close).count();
    assert_eq!(closes, 20);
}

/// Starts a proxy that knows one name and checks the password.
fn proxy_of(upstream: SocketAddr) -> SocketAddr {
    server("127.0.0.1:0", move |mut stream| {
        let head = read_head(&mut stream);
        let known = head.starts_with(&format!("CONNECT one.test:{} HTTP/1.1\r\n", upstream.port()));
        if !known || field(&head, "proxy-authorization") != Some("Basic dTpw") {
            return stream.write_all(b"HTTP/1.1 407 Nope\r\n\r\n").unwrap();
        }
        let mut server = connect(upstream);
        // Together with the first bytes of the tunnel, which must not get lost.
        stream.write_all(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nearly").unwrap();
        let (mut a, mut b) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut a, &mut b));
        std::io::copy(&mut server, &mut stream).ok();
    })
}

#[test]
fn an_upstream_proxy_gets_the_name_and_the_record_says_so() {
    let upstream = server("127.0.0.1:0", echo);
    let proxy = proxy_of(upstream);
    let [one, two] = two_names(upstream);
    let rules = PolicyInput { upstream_proxy: true, ..input(&[&one, &two]) };
    let world = World::with(rules.clone(), |config| {
        config.upstream_proxy = Some(UpstreamProxy::parse(&format!("http://u:p@{proxy}")).unwrap());
    });
    let mut client = tunnel(world.http, &one).unwrap();
    let mut early = [0; 5];
    client.read_exact(&mut early).unwrap();
    assert_eq!(&early, b"early");
    assert!(round_trip(&mut client));
    assert_eq!(world.resolver.take_asked(), ["one.test"], "asked here, and resolved by the proxy");
    assert_eq!(world.events.all()[0].addresses_checked, Some(false));
    assert_eq!(tunnel(world.http, &two).unwrap_err().0, 502, "the proxy refuses it");
    assert_eq!(tunnel(world.http, "denied.test:443").unwrap_err().0, 403, "and never sees what is denied here");
    // Without a proxy nothing starts.
    let config = Config::new(policy(rules.clone()), Clock::start(), world.events.clone());
    assert!(matches!(Egress::start(config, Listeners::default()), Err(StartError::NoUpstream)));
    let direct = World::of(input(&[]));
    assert_eq!(direct.egress().reload(policy(PolicyInput { generation: 2, ..rules })), Err(ReloadError::NoUpstream));
}

/// Tests vector H11 of `nexus_policy::net::vectors`.
#[test]
fn a_name_server_that_fails_is_reported_by_every_ingress_and_nothing_is_dialled() {
    let target = server("127.0.0.1:0", echo);
    let port = target.port();
    let world = World::of(input(&[&format!("+a.test:{port}")]));
    let answer = || enter::by_dns(&world, &Name::from_ascii("a.test.").unwrap()).unwrap();
    for fails in [true, false] {
        if fails {
            world.resolver.fail("a.test", "no name server answers");
        } else {
            world.resolver.repair("a.test");
            world.resolver.set("a.test", &[target.ip()]);
        }
        let connect = enter::by_connect(&world, &format!("a.test:{port}"));
        assert_eq!(connect.err().as_deref(), fails.then_some("NAME_NOT_RESOLVED"));
        let socks = enter::by_socks(&world, 3, b"a.test", port);
        assert_eq!(socks.err().as_deref(), fails.then_some("4"));
        let redirected = enter::by_transparent(&world, SocketAddr::new(answer(), port));
        let passes =
            redirected.is_ok_and(|mut stream| stream.write_all(b"x").is_ok() && stream.read_exact(&mut [0]).is_ok());
        assert_eq!(passes, !fails);
        let of = |kind| world.events.all().iter().filter(|event| event.event == kind).count();
        assert_eq!((of(EventKind::Deny), of(EventKind::Allow)), (3, if fails { 0 } else { 3 }));
    }
    let reported = world.events.all().into_iter().find(|event| event.event == EventKind::Deny).unwrap();
    assert_eq!(reported.code.as_str(), "NAME_NOT_RESOLVED");
    assert!(reported.explanation.unwrap().contains("no name server answers"));
}

#[test]
fn where_the_operators_proxy_is_stays_outside_also_when_its_name_is_not_found() {
    let rules = PolicyInput { upstream_proxy: true, ..input(&["a.test"]) };
    let world = World::with(rules, |config| {
        config.upstream_proxy = Some(UpstreamProxy::parse("http://u:geheim@proxy.corp.test:3128").unwrap());
    });
    world.resolver.fail("proxy.corp.test", "no name server answers");
    let (status, head, body) = tunnel(world.http, "a.test:443").unwrap_err();
    let body = String::from_utf8(body).unwrap();
    assert_eq!(status, 502);
    assert!(body.contains("its name cannot be resolved: no name server answers"), "{body}");
    assert!(!format!("{head}{body}").contains("corp"), "{head}{body}");
}

/// Approver that answers once with a rule, then denies.
struct Once {
    rule: String,
    asked: AtomicUsize,
}

impl Approver for Once {
    fn ask<'a>(&'a self, attempt: &'a Attempt, denial: &'a Denial) -> Asked<'a> {
        assert_eq!((denial.code, attempt.target.host.to_string()), (DenyCode::ApprovalRequired, "one.test".into()));
        let first = self.asked.fetch_add(1, Ordering::Relaxed) == 0;
        let rule = parse_allow_private(&self.rule, Source::flag("asked")).unwrap();
        Box::pin(async move { if first { Answer::Once(rule) } else { Answer::Deny } })
    }
}

#[test]
fn an_approval_for_once_holds_for_one_connection_across_reloads() {
    let upstream = server("127.0.0.1:0", echo);
    let [one, _] = two_names(upstream);
    let approver = Arc::new(Once { rule: one.clone(), asked: AtomicUsize::new(0) });
    let given: Arc<dyn Approver> = approver.clone();
    let world = World::with(PolicyInput { ask: true, ..input(&[]) }, |config| config.approver = Some(given));
    world.resolver.set("*", &[upstream.ip()]);
    let mut client = tunnel(world.http, &one).unwrap();
    assert_eq!(tunnel(world.http, &one).unwrap_err().0, 403, "the second time it is denied");
    assert_eq!(approver.asked.load(Ordering::Relaxed), 2);
    let next = policy(PolicyInput { ask: true, generation: 2, ..input(&["+other.test"]) });
    assert_eq!(world.egress().reload(next), Ok(0));
    assert!(round_trip(&mut client));
    let none = Arc::new(Policy::build(PolicyInput { generation: 3, ..PolicyInput::default() }).unwrap());
    assert_eq!(world.egress().reload(none), Ok(1));
}

#[test]
fn connections_that_queued_up_before_the_start_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut early = connect(address);
    early.write_all(b"CONNECT denied.test:443 HTTP/1.1\r\n\r\n").unwrap();
    let events = Arc::new(support::Memory::default());
    let mut config = Config::new(policy(input(&["a.test"])), Clock::start(), events);
    config.resolver = Arc::new(Scripted::default());
    let egress = Egress::start(config, Listeners { http: Some(listener), ..Listeners::default() }).unwrap();
    assert!(read_head(&mut early).starts_with("HTTP/1.1 403"));
    drop(egress);
    assert!(support::try_connect(address).is_err());
}

#[test]
fn the_record_counts_refusals_that_are_repeated() {
    let mut world = World::of(input(&["web.test"]));
    for _ in 0..100 {
        assert!(tunnel(world.http, "other.test:443").is_err());
    }
    world.egress.take().unwrap().stop().unwrap();
    let denied: Vec<_> = world.events.all().into_iter().filter(|event| event.event == EventKind::Deny).collect();
    let counts: Vec<u64> = denied.iter().map(|event| event.repeated.unwrap_or(1)).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (16 + 3, 100), "{counts:?}");
    let mut replay = nexus_policy::net::Replay::default();
    for line in world.events.lines() {
        replay.line(&line).unwrap();
    }
}
