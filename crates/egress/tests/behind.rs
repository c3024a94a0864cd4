//! In an open network a denied name closes the servers behind it too.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::EventKind;
use nexus_model::capability::NetMode;
use nexus_policy::net::{DenyCode, PolicyInput, Replay, Replayed};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use support::{World, echo, enter, eventually, hello, input, outside_of_netns, read_all, read_head, server, tunnel};

const BAD: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 35);
const MOVED: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 36);
const GOOD: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

fn open(rules: &[&str], names: &[(&str, Ipv4Addr)]) -> World {
    World::with(PolicyInput { mode: Some(NetMode::Unrestricted), ..input(rules) }, |config| {
        let resolver = std::sync::Arc::new(nexus_egress::Scripted::default());
        for (name, address) in names {
            resolver.set(name, &[IpAddr::V4(*address)]);
        }
        config.resolver = resolver;
    })
}

const NAMES: [(&str, Ipv4Addr); 3] = [("bad.test", BAD), ("alias.test", BAD), ("good.test", GOOD)];

fn passes(world: &World, authority: &str) -> TcpStream {
    let mut client = tunnel(world.http, authority).unwrap_or_else(|refused| panic!("{authority}: {refused:?}"));
    client.write_all(b"ping").unwrap();
    let mut back = [0; 4];
    client.read_exact(&mut back).unwrap();
    client
}

fn is_denied(world: &World, authority: &str, word: &str) {
    world.events.take();
    assert!(tunnel(world.http, authority).is_err(), "{authority}");
    let denied = world.events.all().into_iter().find(|event| event.event == EventKind::Deny).unwrap();
    assert_eq!(denied.code, DenyCode::NotInAllowlist, "{authority}: {denied:?}");
    assert!(denied.rule.is_some() && denied.explanation.as_ref().unwrap().contains(word), "{authority}: {denied:?}");
}

fn replays(world: &World) {
    let mut replay = Replay::default();
    let lines = world.events.lines();
    assert!(lines.iter().any(|line| replay.line(line).unwrap() == Replayed::Same), "{lines:?}");
}

#[test]
fn a_denied_name_closes_its_server_on_every_port() {
    if outside_of_netns() {
        return;
    }
    let port = server("0.0.0.0:0", echo).port();
    let world = open(&["-bad.test"], &NAMES);
    for authority in [format!("{BAD}:{port}"), format!("[::ffff:{BAD}]:{port}")] {
        is_denied(&world, &authority, "is an address of bad.test, which the rule -bad.test denies");
    }
    is_denied(&world, &format!("alias.test:{port}"), "an address of bad.test");
    passes(&world, &format!("{GOOD}:{port}"));
    passes(&world, &format!("good.test:{port}"));
    let mut by_transparent = enter::by_transparent(&world, SocketAddr::new(BAD.into(), port)).unwrap();
    assert_eq!(read_all(&mut by_transparent), None);
    replays(&world);
    // A rule for one port closes that one.
    let world = open(&["-bad.test:1"], &NAMES);
    is_denied(&world, &format!("{BAD}:1"), "an address of bad.test");
    passes(&world, &format!("{BAD}:{port}"));
}

#[test]
fn a_denied_name_with_too_many_addresses_closes_what_may_be_it() {
    if outside_of_netns() {
        return;
    }
    let port = server("0.0.0.0:0", echo).port();
    for (count, is_known) in [(64_u8, true), (65, false)] {
        let world = World::with(PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&["-bad.test"]) }, |config| {
            let resolver = nexus_egress::Scripted::default();
            let many: Vec<IpAddr> = (0..count).map(|last| Ipv4Addr::new(11, 22, 33, last).into()).collect();
            resolver.set("bad.test", &many);
            resolver.set("good.test", &[GOOD.into()]);
            config.resolver = std::sync::Arc::new(resolver);
        });
        is_denied(&world, &format!("11.22.33.0:{port}"), "bad.test");
        if is_known {
            passes(&world, &format!("good.test:{port}"));
        } else {
            is_denied(&world, &format!("good.test:{port}"), "whose addresses are not known now");
        }
    }
}

#[test]
fn another_name_of_a_denied_server_must_be_said() {
    if outside_of_netns() {
        return;
    }
    server("0.0.0.0:443", echo);
    let world = open(&["-bad.test"], &NAMES);
    let sent = |authority: &str, bytes: &[u8]| {
        let mut client = tunnel(world.http, authority).unwrap();
        client.write_all(bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        client.read_exact(&mut back).is_ok().then_some(())
    };
    assert_eq!(sent("alias.test:443", &hello("alias.test", None)), Some(()));
    assert_eq!(sent("alias.test:443", &hello("bad.test", None)), None);
    // Without a name the server may take it for the denied one; elsewhere that passes.
    for bytes in [hello("127.0.0.1", None), b"SSH-2.0-x\r\n".to_vec()] {
        assert_eq!(sent("alias.test:443", &bytes), None);
        assert_eq!(sent("good.test:443", &bytes), Some(()));
    }
    is_denied(&world, &format!("{BAD}:443"), "an address of bad.test");
}

#[test]
fn a_server_with_a_denied_name_is_asked_for_the_allowed_one() {
    if outside_of_netns() {
        return;
    }
    server("0.0.0.0:443", echo);
    server("0.0.0.0:80", |mut stream| {
        let head = read_head(&mut stream);
        if !head.is_empty() {
            stream.write_all(b"HTTP/1.1 204 OK\r\nConnection: close\r\n\r\n").unwrap();
        }
    });
    let names = [NAMES[0], NAMES[1], NAMES[2], ("third.test", BAD)];
    let world = open(&["-bad.test"], &names);
    let passes = |host: &str, sni: &str| {
        let bytes = hello(sni, None);
        let mut client = tunnel(world.http, &format!("{host}:443")).unwrap();
        client.write_all(&bytes).unwrap();
        client.read_exact(&mut vec![0; bytes.len()]).is_ok()
    };
    assert!(passes("alias.test", "alias.test"));
    // A server answers what it does not know with its first site, which may be the denied one.
    for sni in ["third.test", "unknown.test", "good.test"] {
        assert!(!passes("alias.test", sni), "{sni}");
    }
    assert!(passes("good.test", "third.test"), "no name of that server is denied");
    let asks = |host: &str, request: &str| {
        let mut client = tunnel(world.http, &format!("{host}:80")).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        read_head(&mut client).starts_with("HTTP/1.1 204")
    };
    assert!(asks("alias.test", "GET / HTTP/1.1\r\nHost: alias.test\r\n\r\n"));
    for request in ["GET / HTTP/1.1\r\nHost: third.test\r\n\r\n", "GET / HTTP/1.0\r\n\r\n"] {
        assert!(!asks("alias.test", request), "{request}");
        assert!(asks("good.test", request), "{request}");
    }
}

#[test]
fn a_name_that_cannot_be_looked_up_closes_what_may_be_it() {
    if outside_of_netns() {
        return;
    }
    let port = server("0.0.0.0:0", echo).port();
    server("0.0.0.0:443", echo);
    let resolver = std::sync::Arc::new(nexus_egress::Scripted::default());
    resolver.set("good.test", &[IpAddr::V4(GOOD)]);
    resolver.fail("bad.test", "the server does not answer");
    let given = resolver.clone();
    let mode = Some(NetMode::Unrestricted);
    let world = World::with(PolicyInput { mode, ..input(&["-bad.test"]) }, move |config| {
        config.resolver = given;
        config.limits.follow_every = Duration::from_millis(600);
    });
    is_denied(&world, &format!("{GOOD}:{port}"), "whose addresses are not known now");
    is_denied(&world, &format!("good.test:{port}"), "whose addresses are not known now");
    let mut client = tunnel(world.http, "good.test:443").unwrap();
    let bytes = hello("good.test", None);
    client.write_all(&bytes).unwrap();
    client.read_exact(&mut vec![0; bytes.len()]).unwrap();
    replays(&world);
    // A name without an address has no server.
    resolver.repair("bad.test");
    eventually("the next look-up", || tunnel(world.http, &format!("{GOOD}:{port}")).is_ok());
}

#[test]
fn a_denied_name_is_followed_to_its_next_address() {
    if outside_of_netns() {
        return;
    }
    let port = server("0.0.0.0:0", echo).port();
    let resolver = std::sync::Arc::new(Moving::default());
    let given = resolver.clone();
    let mode = Some(NetMode::Unrestricted);
    let world = World::with(PolicyInput { mode, ..input(&["-bad.test"]) }, move |config| {
        config.resolver = given;
        config.limits.follow_every = Duration::from_millis(600);
    });
    is_denied(&world, &format!("{BAD}:{port}"), "an address of bad.test");
    let mut open = passes(&world, &format!("{MOVED}:{port}"));
    resolver.0.store(true, std::sync::atomic::Ordering::SeqCst);
    // The open connection is cut, and the address of before stays closed.
    assert_eq!(read_all(&mut open), None);
    is_denied(&world, &format!("{MOVED}:{port}"), "an address of bad.test");
    is_denied(&world, &format!("{BAD}:{port}"), "an address of bad.test");
}

/// Resolver for which a denied name moves to the server of the other names.
#[derive(Default)]
struct Joining(std::sync::atomic::AtomicBool);

impl nexus_egress::Resolver for Joining {
    fn lookup<'a>(&'a self, name: &'a nexus_policy::net::Name) -> nexus_egress::Lookup<'a> {
        let joined = self.0.load(std::sync::atomic::Ordering::SeqCst);
        let apart = name.as_str() == "bad.test" && !joined;
        let addrs = vec![IpAddr::V4(if apart { BAD } else { MOVED })];
        Box::pin(async move { Ok(nexus_egress::Resolved { addrs, ttl_s: Some(1), partial: None }) })
    }
}

/// Serves HTTP with upgrades, and repeats everything that is not HTTP.
fn web(mut stream: TcpStream) {
    loop {
        let mut first = [0];
        if !matches!(stream.peek(&mut first), Ok(1)) || first == [0] {
            return echo(stream);
        }
        let head = read_head(&mut stream);
        if head.contains("websocket") {
            let switch = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            stream.write_all(switch.as_bytes()).unwrap();
            return echo(stream);
        }
        if head.is_empty() || stream.write_all(b"HTTP/1.1 204 OK\r\n\r\n").is_err() {
            return;
        }
    }
}

#[test]
fn what_is_learned_of_a_server_holds_the_connections_that_are_open() {
    if outside_of_netns() {
        return;
    }
    server("0.0.0.0:443", echo);
    server("0.0.0.0:80", web);
    let resolver = std::sync::Arc::new(Joining::default());
    let given = resolver.clone();
    let mode = Some(NetMode::Unrestricted);
    let world = World::with(PolicyInput { mode, ..input(&["-bad.test"]) }, move |config| {
        config.resolver = given;
        config.limits.follow_every = Duration::from_millis(600);
    });
    let open = |port: u16| tunnel(world.http, &format!("alias.test:{port}")).unwrap();
    let repeats = |client: &mut TcpStream, bytes: &[u8]| {
        let mut back = vec![0; bytes.len()];
        client.write_all(bytes).is_ok() && client.read_exact(&mut back).is_ok() && back == bytes
    };
    let asks = |client: &mut TcpStream, host: &str, more: &str| {
        let sent = client.write_all(format!("GET / HTTP/1.1\r\nHost: {host}\r\n{more}\r\n").as_bytes());
        sent.map_or(0, |()| support::status(&read_head(client)))
    };
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
    // Tunnels that named another host, or none, and those that named exactly their own.
    let (own, other, none) = (hello("alias.test", None), hello("zzz.test", None), hello("127.0.0.1", None));
    let mut unnamed: Vec<(&str, TcpStream)> = Vec::new();
    for (what, port, bytes) in
        [("plain", 443, &b"plain"[..]), ("other", 443, &other), ("none", 443, &none), ("zero", 80, &b"\0GET"[..])]
    {
        let mut client = open(port);
        assert!(repeats(&mut client, bytes), "{what}");
        unnamed.push((what, client));
    }
    let mut named = vec![("own", open(443))];
    assert!(repeats(&mut named[0].1, &own));
    for (host, kept) in [("zzz.test", false), ("alias.test", true)] {
        let mut client = open(80);
        assert_eq!(asks(&mut client, host, upgrade), 101, "{host}");
        assert!(repeats(&mut client, b"frame"), "{host}");
        if kept { named.push(("websocket", client)) } else { unnamed.push(("websocket", client)) }
    }
    // Connections that have said nothing yet, and ones with requests.
    let silent =
        [("plain", &b"plain"[..]), ("other", &other), ("none", &none)].map(|(what, bytes)| (what, bytes, open(443)));
    let (mut late, mut zero) = (open(443), open(80));
    let mut requests: Vec<TcpStream> = (0..2).map(|_| open(80)).collect();
    for client in &mut requests {
        assert_eq!(asks(client, "zzz.test", ""), 204);
    }
    let direct = format!("{MOVED}:443");
    assert!(tunnel(world.http, &direct).is_ok());
    resolver.0.store(true, std::sync::atomic::Ordering::SeqCst);
    eventually("the denied name is known at the server", || tunnel(world.http, &direct).is_err());

    for (what, mut client) in unnamed {
        assert!(!repeats(&mut client, b"more"), "{what}: open before");
    }
    for (what, mut client) in named {
        // A record of TLS with data, which follows a hello in clear.
        assert!(repeats(&mut client, b"\x17\x03\x03\0\x04more"), "{what}: it named its host");
    }
    for (what, bytes, mut client) in silent {
        assert!(!repeats(&mut client, bytes), "{what}: silent before");
    }
    assert!(repeats(&mut late, &own), "a hello for exactly that host");
    assert!(!repeats(&mut zero, b"\0GET"), "silent before, on port 80");
    assert_eq!(asks(&mut requests[0], "alias.test", ""), 204);
    assert_ne!(asks(&mut requests[1], "zzz.test", ""), 204);
    replays(&world);
}

#[test]
fn a_name_that_is_asked_for_often_leaves_the_others_alone() {
    if outside_of_netns() {
        return;
    }
    let resolver = std::sync::Arc::new(Counting::default());
    let given = resolver.clone();
    let rules = ["-fails.test", "-short.test", "-long.test"];
    let world = World::with(PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&rules) }, move |config| {
        config.resolver = given;
        config.limits.follow_every = Duration::from_millis(300);
    });
    // 50 ms, 100 ms, 200 ms … after each failure, 300 ms for an answer that holds for no time.
    eventually("the fourth look-up of the name that fails", || resolver.count("fails.test") >= 4);
    eventually("the second look-up of the short answer", || resolver.count("short.test") >= 2);
    let (fails, short, long) =
        (resolver.count("fails.test"), resolver.count("short.test"), resolver.count("long.test"));
    assert!(fails > long && short >= long, "{fails} {short} {long}");
    drop(world);
}

/// Resolver with an answer that ends at once for one name, a failure for one, and a long-lived answer for the others.
/// It counts the look-ups.
#[derive(Default)]
struct Counting(std::sync::Mutex<Vec<String>>);

impl Counting {
    fn count(&self, name: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|asked| *asked == name).count()
    }
}

impl nexus_egress::Resolver for Counting {
    fn lookup<'a>(&'a self, name: &'a nexus_policy::net::Name) -> nexus_egress::Lookup<'a> {
        self.0.lock().unwrap().push(name.to_string());
        let (name, addrs) = (name.to_string(), vec![IpAddr::V4(BAD)]);
        Box::pin(async move {
            match name.as_str() {
                "fails.test" => Err(nexus_egress::ResolveError::Failed { name, why: "no answer".into() }),
                "short.test" => Ok(nexus_egress::Resolved { addrs, ttl_s: Some(0), partial: None }),
                _ => Ok(nexus_egress::Resolved { addrs, ttl_s: Some(3600), partial: None }),
            }
        })
    }
}

/// Resolver that answers with one address and later with another one, for a second each.
#[derive(Default)]
struct Moving(std::sync::atomic::AtomicBool);

impl nexus_egress::Resolver for Moving {
    fn lookup<'a>(&'a self, _name: &'a nexus_policy::net::Name) -> nexus_egress::Lookup<'a> {
        let moved = self.0.load(std::sync::atomic::Ordering::SeqCst);
        let addrs = vec![IpAddr::V4(if moved { MOVED } else { BAD })];
        Box::pin(async move { Ok(nexus_egress::Resolved { addrs, ttl_s: Some(1), partial: None }) })
    }
}
