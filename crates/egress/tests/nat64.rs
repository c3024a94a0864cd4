//! Prefixes of NAT64 that the network's resolver shows: an address below one leads no further than the IPv4 address that
//! it carries.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

#[path = "system/server.rs"]
mod name_server;

use name_server::{Asked, NameServer};
use nexus_egress::{Limits, Lookup, Resolved, Resolver, System};
use nexus_model::capability::NetMode;
use nexus_policy::net::{Name, PolicyInput};
use std::net::IpAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use support::{World, again, echo, eventually, field, input, outside_of_netns, policy, read_all, server, tunnel};
use tokio::sync::watch;

/// For a prefix of each length of RFC 6052, the addresses that carry 192.0.0.170, 10.0.0.1 and 93.184.216.34.
const EACH_LENGTH: [[&str; 3]; 6] = [
    ["2a01:db8:c000:aa::", "2a01:db8:a00:1::", "2a01:db8:5db8:d822::"],
    ["2a01:db8:1c0:0:aa::", "2a01:db8:10a:0:1::", "2a01:db8:15d:b8d8:22::"],
    ["2a01:db8:122:c000:0:aa00::", "2a01:db8:122:a00:0:100::", "2a01:db8:122:5db8:d8:2200::"],
    ["2a01:db8:122:3c0:0:aa::", "2a01:db8:122:30a:0:1::", "2a01:db8:122:35d:b8:d822::"],
    ["2a01:db8:122:344:c0:0:aa00::", "2a01:db8:122:344:a:0:100::", "2a01:db8:122:344:5d:b8d8:2200::"],
    ["2a01:db8:122:344::192.0.0.170", "2a01:db8:122:344::10.0.0.1", "2a01:db8:122:344::93.184.216.34"],
];

fn open() -> World {
    World::of(PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&[]) })
}

#[test]
fn an_address_below_a_prefix_of_the_network_is_what_it_carries() {
    if outside_of_netns() {
        return;
    }
    server("[::]:6000", echo);
    for [known, private, public] in EACH_LENGTH {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let world = open();
        world.resolver.set("ipv4only.arpa", &[ip("192.0.0.170"), ip("192.0.0.171"), ip(known)]);
        world.resolver.set("private.test", &[ip(private)]);
        world.resolver.set("public.test", &[ip(public)]);
        for host in [format!("[{private}]"), "private.test".into()] {
            let (code, _, body) = tunnel(world.http, &format!("{host}:6000")).unwrap_err();
            let body = String::from_utf8(body).unwrap();
            assert!(code == 403 && body.contains("private address"), "{host}: {body}");
        }
        for host in [format!("[{public}]"), "public.test".into()] {
            assert!(tunnel(world.http, &format!("{host}:6000")).is_ok(), "{host}");
        }
        // The prefix stands in the record, and a new policy keeps it.
        assert!(world.events.lines().iter().any(|line| line.contains("\"nat64\":[\"2a01:db8:")));
        let again = PolicyInput { mode: Some(NetMode::Unrestricted), generation: 2, ..PolicyInput::default() };
        world.egress().reload(policy(again)).unwrap();
        assert_eq!(tunnel(world.http, &format!("[{private}]:6000")).unwrap_err().0, 403);
        let asked = world.resolver.take_asked();
        assert_eq!(asked.iter().filter(|name| *name == "ipv4only.arpa").count(), 1, "kept while it holds: {asked:?}");
    }
}

#[test]
fn an_ordinary_address_of_a_network_without_nat64_stays_open() {
    if outside_of_netns() {
        return;
    }
    server("[::]:6000", echo);
    let world = open();
    let v4 = |last| IpAddr::from([192, 0, 0, last]);
    world.resolver.set("ipv4only.arpa", &[v4(170), v4(171)]);
    for [_, private, _] in EACH_LENGTH {
        assert!(tunnel(world.http, &format!("[{private}]:6000")).is_ok(), "{private}");
    }
    world.resolver.take_asked();
    // Without an IPv6 address there is no question.
    let world = open();
    world.resolver.set("v4.test", &[IpAddr::from([93, 184, 216, 34])]);
    drop(tunnel(world.http, "v4.test:6000"));
    assert_eq!(world.resolver.take_asked(), ["v4.test"]);
}

/// Resolver that answers for the prefixes when the gate opens, and for every other name at once.
struct Late {
    open: watch::Sender<bool>,
    prefix: IpAddr,
    other: IpAddr,
}

impl Resolver for Late {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            let mut addrs = vec![self.other];
            if name.as_str() == "ipv4only.arpa" {
                self.open.subscribe().wait_for(|open| *open).await.unwrap();
                addrs = vec![self.prefix];
            }
            Ok(Resolved { addrs, ..Resolved::default() })
        })
    }
}

#[test]
fn a_silent_resolver_opens_no_address_that_a_program_chooses() {
    if outside_of_netns() {
        return;
    }
    server("[::]:6000", echo);
    let [known, private, public] = EACH_LENGTH[5];
    let late = Arc::new(Late {
        open: watch::channel(false).0,
        prefix: known.parse().unwrap(),
        other: public.parse().unwrap(),
    });
    let with = |mode| {
        World::with(PolicyInput { mode, ..input(&["+*.wild.test:6000", "+exact.test:6000"]) }, |config| {
            config.resolver = late.clone();
            config.limits = Limits { resolve_time: Duration::from_millis(200), ..Limits::default() };
        })
    };
    let (world, list) = (with(Some(NetMode::Unrestricted)), with(None));
    let refused = |world: &World, host: &str| {
        let (code, head, body) = tunnel(world.http, &format!("{host}:6000")).unwrap_err();
        let body = String::from_utf8(body).unwrap();
        assert_eq!(field(&head, "x-proxy-error"), Some("NAME_NOT_RESOLVED"), "{host}: {code} {body}");
        assert!(body.contains("NAT64"), "{body}");
    };
    for host in [format!("[{private}]"), format!("[{public}]"), "a.wild.test".into(), "other.test".into()] {
        refused(&world, &host);
    }
    refused(&list, "a.wild.test");
    // The user chose these.
    assert!(tunnel(world.http, "exact.test:6000").is_ok());
    assert!(tunnel(list.http, "exact.test:6000").is_ok());
    late.open.send_replace(true);
    eventually("the question again", || tunnel(world.http, &format!("[{public}]:6000")).is_ok());
    assert_eq!(tunnel(world.http, &format!("[{private}]:6000")).unwrap_err().0, 403);
}

#[test]
fn a_late_answer_cuts_what_was_opened_before_it() {
    if outside_of_netns() {
        return;
    }
    server("[::]:6000", echo);
    let [known, private, _] = EACH_LENGTH[0];
    let late = Arc::new(Late {
        open: watch::channel(false).0,
        prefix: known.parse().unwrap(),
        other: private.parse().unwrap(),
    });
    let world = World::with(input(&["exact.test:6000"]), |config| config.resolver = late.clone());
    let mut open = tunnel(world.http, "exact.test:6000").unwrap();
    late.open.send_replace(true);
    assert_eq!(read_all(&mut open), None, "a reset");
    assert_eq!(tunnel(world.http, "exact.test:6000").unwrap_err().0, 403);
}

#[test]
fn a_name_server_shows_the_prefix_of_its_network() {
    if !again::is_inner() {
        let setup = format!(
            "mount -t tmpfs none /etc && echo nameserver 127.0.0.1 > /etc/resolv.conf && {} && exec \"$0\" \"$@\"",
            again::ALL_LOCAL
        );
        return again::passes_again(Command::new("unshare").args(["-rnm", "sh", "-c", &setup]));
    }
    server("[::]:6000", echo);
    let names = NameServer::start();
    let world = World::with(PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&[]) }, |config| {
        config.resolver = Arc::new(System::default());
    });
    for host in ["translated.test", "[2a01:db8:122:344::10.0.0.1]"] {
        let (code, _, body) = tunnel(world.http, &format!("{host}:6000")).unwrap_err();
        assert!(code == 403 && String::from_utf8(body).unwrap().contains("private address"), "{host}");
    }
    assert!(tunnel(world.http, "public.test:6000").is_ok());
    let asked: Vec<Asked> = names.take().into_iter().filter(|asked| asked.name == "ipv4only.arpa.").collect();
    assert_eq!(asked.len(), 2, "one question for each family: {asked:?}");
}
