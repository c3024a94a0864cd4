//! The egress asks the kernel for this host's own addresses at each connection, and again when addresses or routes
//! change.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{EventKind, KernelRoutes, OwnAddresses};
use nexus_model::capability::NetMode;
use nexus_policy::net::{DenyCode, PolicyInput, Replay, Replayed};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use support::{World, echo, enter, eventually, input, outside_of_small_netns, read_all, server, tunnel};

const V4: Ipv4Addr = Ipv4Addr::new(93, 184, 219, 77);
const V6: Ipv6Addr = Ipv6Addr::new(0x2a01, 0x4f8, 0x99, 0, 0, 0, 0, 0xabcd);

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Reports whether the kernel delivers packets for this address to this host.
fn is_local(address: Ipv6Addr) -> bool {
    let output = Command::new("ip").args(["-6", "route", "show", "table", "local"]).output().unwrap();
    let wanted = format!("local {address} ");
    String::from_utf8(output.stdout).unwrap().lines().any(|line| line.starts_with(&wanted))
}

/// Creates a world in which everything is open, and the kernel is asked.
fn open_world(rules: &[&str]) -> World {
    let mode = Some(NetMode::Unrestricted);
    let world = World::with(PolicyInput { mode, ..input(rules) }, |config| config.own_addresses = None);
    world.resolver.set("v4.test", &[V4.into()]);
    world.resolver.set("v6.test", &[V6.into()]);
    world
}

/// Checks that every way in refuses both addresses with this code.
fn is_refused(world: &World, port: u16, code: DenyCode) {
    for authority in
        [format!("{V4}:{port}"), format!("[{V6}]:{port}"), format!("v4.test:{port}"), format!("v6.test:{port}")]
    {
        world.events.take();
        assert!(tunnel(world.http, &authority).is_err(), "{authority}");
        let refused = world.events.all().into_iter().find(|event| event.event == EventKind::Deny);
        let refused = refused.unwrap_or_else(|| panic!("{authority}: {:?}", world.events.all()));
        assert_eq!(refused.code, code, "{authority}: {refused:?}");
    }
    for to in [IpAddr::V4(V4), IpAddr::V6(V6)] {
        world.events.take();
        // The reset may come before anything is sent.
        if let Ok(mut stream) = enter::by_transparent(world, SocketAddr::new(to, port)) {
            assert_eq!(read_all(&mut stream), None, "{to}");
        }
        eventually("the refusal in the record", || world.events.has(EventKind::Deny));
        assert_eq!(world.events.take()[0].code, code, "{to}");
    }
}

/// Checks that a replay of the record alone gives the same decisions.
fn replays(world: &World) {
    let mut replay = Replay::default();
    let lines = world.events.lines();
    assert!(lines.iter().any(|line| replay.line(line).unwrap() == Replayed::Same), "{lines:?}");
}

#[test]
fn an_address_that_comes_later_is_this_hosts_own() {
    if outside_of_small_netns() {
        return;
    }
    let port = server("[::]:0", echo).port();
    let world = open_world(&[]);
    // There is no way to it yet: it is allowed and cannot be reached.
    assert!(tunnel(world.http, &format!("v4.test:{port}")).is_err());
    assert!(world.events.has(EventKind::Allow) && world.events.has(EventKind::Fail), "{:?}", world.events.all());
    ip(&format!("addr add {V4}/32 dev lo"));
    ip(&format!("addr add {V6}/128 dev lo"));
    // The kernel enters the route of an IPv6 address after `ip` has returned (addrconf_dad_work).
    eventually("the route to the address", || is_local(V6));
    is_refused(&world, port, DenyCode::PrivateDestination);
    replays(&world);
}

#[test]
fn a_prefix_routed_to_the_host_is_its_own() {
    if outside_of_small_netns() {
        return;
    }
    let port = server("[::]:0", echo).port();
    ip("route add local 93.184.219.0/24 dev lo");
    ip("-6 route add local 2a01:4f8:99::/64 dev lo");
    is_refused(&open_world(&[]), port, DenyCode::PrivateDestination);
    // Who allows exactly that gets it.
    let private = [format!("+{V4}:{port}"), format!("+[{V6}]:{port}"), format!("+v4.test:{port}")];
    let world = open_world(&private.iter().map(String::as_str).collect::<Vec<_>>());
    for authority in [format!("{V4}:{port}"), format!("[{V6}]:{port}"), format!("v4.test:{port}")] {
        tunnel(world.http, &authority).unwrap();
    }
    replays(&world);
}

#[test]
fn the_kernel_tells_when_addresses_or_routes_change() {
    if outside_of_small_netns() {
        return;
    }
    let changes = KernelRoutes::here().unwrap().changes().unwrap().unwrap();
    let noticed = || {
        let mut space = [0; 8192];
        rustix::net::recv(changes.as_fd(), &mut space[..], rustix::net::RecvFlags::DONTWAIT).is_ok()
    };
    for change in [
        format!("addr add {V4}/32 dev lo"),
        format!("addr add {V6}/128 dev lo"),
        "route add local 93.184.220.0/24 dev lo".to_owned(),
        "-6 route add local 2a01:4f8:9a::/64 dev lo".to_owned(),
    ] {
        while noticed() {}
        ip(&change);
        eventually(&change, noticed);
    }
}

/// Source of own addresses that a test sets.
struct Scripted {
    own: AtomicBool,
    broken: AtomicBool,
    changes: Mutex<Option<OwnedFd>>,
}

impl Scripted {
    fn new() -> (Arc<Self>, UnixStream) {
        let (notice, changes) = UnixStream::pair().unwrap();
        changes.set_nonblocking(true).unwrap();
        let changes = Mutex::new(Some(changes.into()));
        (Arc::new(Self { own: AtomicBool::new(false), broken: AtomicBool::new(false), changes }), notice)
    }
}

impl OwnAddresses for Scripted {
    fn is_own(&self, to: SocketAddr) -> io::Result<bool> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(io::Error::other("no answer"));
        }
        Ok(to.ip() == IpAddr::V4(V4) && self.own.load(Ordering::SeqCst))
    }

    fn changes(&self) -> io::Result<Option<OwnedFd>> {
        Ok(self.changes.lock().unwrap().take())
    }
}

fn scripted_world() -> (World, Arc<Scripted>, UnixStream) {
    let (own, notice) = Scripted::new();
    let given = own.clone();
    let input = PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&[]) };
    let world = World::with(input, |config| config.own_addresses = Some(given));
    world.resolver.set("v4.test", &[V4.into()]);
    (world, own, notice)
}

#[test]
fn an_open_connection_is_cut_when_its_address_becomes_own() {
    if outside_of_small_netns() {
        return;
    }
    ip("route add local 93.184.219.0/24 dev lo");
    let port = server("0.0.0.0:0", echo).port();
    for how in ["own", "no answer"] {
        let (world, own, mut notice) = scripted_world();
        let mut client = tunnel(world.http, &format!("v4.test:{port}")).unwrap();
        // A change that concerns nothing of it.
        notice.write_all(b"x").unwrap();
        if how == "own" { &own.own } else { &own.broken }.store(true, Ordering::SeqCst);
        notice.write_all(b"x").unwrap();
        assert_eq!(read_all(&mut client), None, "{how}: a reset");
        eventually("the cut in the record", || world.events.has(EventKind::Cut));
        let cut = world.events.take().into_iter().find(|event| event.event == EventKind::Cut).unwrap();
        let code = if how == "own" { DenyCode::PrivateDestination } else { DenyCode::InternalError };
        assert_eq!(cut.code, code, "{how}");
    }
}

#[test]
fn without_an_answer_of_the_kernel_nothing_is_dialled() {
    if outside_of_small_netns() {
        return;
    }
    ip("route add local 93.184.219.0/24 dev lo");
    let port = server("0.0.0.0:0", |_| panic!("it was dialled")).port();
    let (world, own, _notice) = scripted_world();
    own.broken.store(true, Ordering::SeqCst);
    for authority in [format!("{V4}:{port}"), format!("v4.test:{port}")] {
        let (status, ..) = tunnel(world.http, &authority).unwrap_err();
        assert_eq!(status, 500, "{authority}");
    }
    let events = world.events.all();
    assert!(events.iter().all(|event| event.event == EventKind::Resolve || event.code == DenyCode::InternalError));
}
