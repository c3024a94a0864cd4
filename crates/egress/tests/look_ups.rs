//! Names that the program inside chooses do not keep other names from being looked up.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{Limits, Lookup, ResolveError, Resolved, Resolver};
use nexus_policy::net::Name;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{World, connect, echo, eventually, input, server, tunnel};
use tokio::sync::watch;

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Resolver that answers names below `silent.test` and `late.test` when the gate opens, `kept.test` from memory, and
/// every other at once.
struct Gate {
    open: watch::Sender<bool>,
    asked: AtomicUsize,
    waiting: AtomicUsize,
    /// Number of attempts that came to their look-up, which each asks for a known answer first.
    came: AtomicUsize,
}

impl Gate {
    fn new() -> Arc<Self> {
        let [asked, waiting, came] = [(); 3].map(|()| AtomicUsize::new(0));
        Arc::new(Self { open: watch::channel(false).0, asked, waiting, came })
    }

    fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }
}

/// Look-up that is counted while it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn on(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn local() -> Resolved {
    Resolved { addrs: vec![LOCAL], ..Resolved::default() }
}

impl Resolver for Gate {
    fn lookup<'a>(&'a self, name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if name.as_str().ends_with("silent.test") || name.as_str().ends_with("late.test") {
                let _waiting = Waiting::on(&self.waiting);
                self.open.subscribe().wait_for(|open| *open).await.unwrap();
            }
            Ok(local())
        })
    }

    fn known(&self, name: &Name) -> Option<Result<Resolved, ResolveError>> {
        self.came.fetch_add(1, Ordering::SeqCst);
        (name.as_str() == "kept.test").then(|| Ok(local()))
    }
}

fn world(gate: &Arc<Gate>, port: u16, names: &[&str]) -> World {
    with_rules(gate, &names.iter().map(|name| format!("+{name}:{port}")).collect::<Vec<_>>())
}

fn with_rules(gate: &Arc<Gate>, rules: &[String]) -> World {
    World::with(input(&rules.iter().map(String::as_str).collect::<Vec<_>>()), |config| {
        config.resolver = gate.clone();
        config.limits = Limits { look_ups: 8, resolve_time: Duration::from_secs(300), ..Limits::default() };
    })
}

fn ask(world: &World, host: &str, port: u16) -> TcpStream {
    use std::io::Write;
    let mut client = connect(world.http);
    write!(client, "CONNECT {host}:{port} HTTP/1.1\r\n\r\n").unwrap();
    client
}

#[test]
fn names_below_a_wildcard_starve_no_name_of_a_rule() {
    let (gate, port) = (Gate::new(), server("127.0.0.1:0", echo).port());
    let world = world(&gate, port, &["*.silent.test", "exact.test"]);
    let silent: Vec<TcpStream> = (0..40).map(|n| ask(&world, &format!("n{n}.silent.test"), port)).collect();
    eventually("all places taken", || gate.waiting() == 6);
    // One that a rule writes out has its own places.
    tunnel(world.http, &format!("exact.test:{port}")).unwrap();
    assert_eq!(gate.waiting(), 6);
    drop(silent);
}

#[test]
fn a_name_of_a_rule_does_not_wait_with_a_wildcards() {
    let (gate, port, other) = (Gate::new(), server("127.0.0.1:0", echo).port(), server("127.0.0.1:0", echo).port());
    let rules = [format!("+*.silent.test:{port}"), format!("+*.w.test:{port}"), format!("+x.w.test:{other}")];
    let world = with_rules(&gate, &rules);
    let _silent: Vec<TcpStream> = (0..6).map(|n| ask(&world, &format!("n{n}.silent.test"), port)).collect();
    eventually("all places taken", || gate.waiting() == 6);
    // A rule writes this name out for the other port alone.
    let mut waiting = ask(&world, "x.w.test", port);
    eventually("the attempt at its look-up", || gate.came() == 7);
    tunnel(world.http, &format!("x.w.test:{other}")).unwrap();
    assert_eq!(gate.asked(), 7, "only the name of the rule was looked up");
    gate.open.send(true).unwrap();
    assert!(support::read_head(&mut waiting).starts_with("HTTP/1.1 200"));
}

#[test]
fn a_name_that_is_known_takes_no_place() {
    let (gate, port) = (Gate::new(), server("127.0.0.1:0", echo).port());
    let names: Vec<String> = (0..9).map(|n| format!("n{n}.silent.test")).collect();
    let mut rules: Vec<&str> = names.iter().map(String::as_str).collect();
    rules.push("kept.test");
    let world = world(&gate, port, &rules);
    let silent: Vec<TcpStream> = names.iter().map(|name| ask(&world, name, port)).collect();
    eventually("all places taken, also those for names of rules", || gate.waiting() == 8);
    tunnel(world.http, &format!("kept.test:{port}")).unwrap();
    drop(silent);
}

/// Ends the sending half of each client, and waits for the answer that this ends its attempt.
fn leave(clients: impl IntoIterator<Item = TcpStream>) {
    let clients: Vec<TcpStream> = clients.into_iter().collect();
    for client in &clients {
        client.shutdown(Shutdown::Write).unwrap();
    }
    for mut client in clients {
        assert!(support::read_head(&mut client).starts_with("HTTP/1.1 400"));
    }
}

#[test]
fn one_look_up_serves_all_who_wait_for_a_name() {
    let (gate, port) = (Gate::new(), server("127.0.0.1:0", echo).port());
    let world = world(&gate, port, &["late.test"]);
    let first = ask(&world, "late.test", port);
    eventually("the look-up", || gate.waiting() == 1);
    let leaving: Vec<TcpStream> = (0..5).map(|_| ask(&world, "late.test", port)).collect();
    let mut clients: Vec<TcpStream> = (0..30).map(|_| ask(&world, "late.test", port)).collect();
    eventually("every attempt at its look-up", || gate.came() == 36);
    // The look-up goes on for the others when the client that began it leaves.
    leave([first]);
    leave(leaving);
    gate.open.send(true).unwrap();
    for client in &mut clients {
        assert!(support::read_head(client).starts_with("HTTP/1.1 200"));
    }
    assert_eq!(gate.asked(), 1, "the look-up began again");
    // A later attempt asks another question.
    tunnel(world.http, &format!("late.test:{port}")).unwrap();
    assert_eq!(gate.asked(), 2);
}

#[test]
fn a_look_up_ends_with_the_last_client_that_waits_for_it() {
    let (gate, port) = (Gate::new(), server("127.0.0.1:0", echo).port());
    let world = world(&gate, port, &["*.silent.test", "*.x.test"]);
    for round in 1..=3 {
        let twice = || (0..6).map(|n| ask(&world, &format!("n{n}.silent.test"), port)).collect::<Vec<_>>();
        let (one, other) = (twice(), twice());
        eventually("every attempt at its look-up", || gate.came() == 12 * round);
        eventually("all places taken", || gate.waiting() == 6);
        leave(one);
        assert_eq!(gate.waiting(), 6, "other clients wait for these look-ups");
        leave(other);
        eventually("the end of the look-ups", || gate.waiting() == 0);
    }
    tunnel(world.http, &format!("a.x.test:{port}")).unwrap();
}

#[test]
fn look_ups_of_names_below_a_wildcard_are_paced() {
    const NAMES: usize = 400;
    let (gate, port) = (Gate::new(), server("127.0.0.1:0", echo).port());
    let world = world(&gate, port, &["*.x.test", "exact.test"]);
    let started = Instant::now();
    for number in 0..NAMES {
        tunnel(world.http, &format!("n{number}.x.test:{port}")).unwrap();
    }
    // 256 at once, 100 a second from then on.
    assert!(started.elapsed() > Duration::from_millis(1300), "{:?}", started.elapsed());
    let asked = gate.asked();
    tunnel(world.http, &format!("exact.test:{port}")).unwrap();
    assert_eq!(gate.asked(), asked + 1);
}
