//! A client that goes takes its place, its server's connection and its look-up with it.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{Limits, Lookup, ResolveError, Resolved, Resolver};
use nexus_policy::net::Name;
use std::io::Write;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use support::{World, connect, enter, eventually, input, read_head, server};
use tokio::sync::watch;

/// Starts a server that reads a head, then nothing, and never answers. It reports the head, and then the end of the
/// connection.
fn hanging() -> (SocketAddr, Receiver<()>) {
    let (send, reported) = channel();
    let at = server("127.0.0.1:0", move |mut stream: TcpStream| {
        read_head(&mut stream);
        send.send(()).unwrap();
        // What was sent behind the head stays unread.
        support::eventually("the end of the connection", || {
            let mut ready = [rustix::event::PollFd::new(&stream, rustix::event::PollFlags::RDHUP)];
            rustix::event::poll(&mut ready, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 })).unwrap()
                > 0
        });
        send.send(()).unwrap();
    });
    (at, reported)
}

fn world(at: SocketAddr, limits: Limits) -> World {
    let world = World::with(input(&[&format!("+web.test:{}", at.port())]), |config| config.limits = limits);
    world.resolver.set("web.test", &[Ipv4Addr::LOCALHOST.into()]);
    world
}

/// Ends the connection with a reset, as the end of a process with unread bytes does.
fn reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
}

#[test]
fn an_exchange_ends_when_its_client_has_gone() {
    let (at, reported) = hanging();
    let half_closed = Limits { half_closed: Duration::from_millis(50), ..Limits::default() };
    // What the client sends, in bytes, and how it ends. More than the kernel takes for a server that reads nothing.
    for (body, limits, end) in
        [(0, Limits::default(), reset as fn(TcpStream)), (64 << 20, Limits::default(), reset), (0, half_closed, drop)]
    {
        let world = world(at, limits);
        let mut client = connect(world.http);
        client.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let host = format!("web.test:{}", at.port());
        write!(client, "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: {body}\r\n\r\n").unwrap();
        reported.recv_timeout(support::TIMEOUT).unwrap();
        // Ends by the time-out of the write if no process reads it.
        client.write_all(&vec![b'x'; body]).ok();
        assert_eq!(world.egress().summary().open, 1);
        end(client);
        reported.recv_timeout(support::TIMEOUT).unwrap_or_else(|error| panic!("{body} bytes: {error}"));
        eventually("the end of the connection in the books", || world.egress().summary().open == 0);
    }
}

/// Resolver that never answers, and counts the look-ups that wait for it.
#[derive(Default)]
struct Silent(AtomicUsize);

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Resolver for Silent {
    fn lookup<'a>(&'a self, _name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            self.0.fetch_add(1, Ordering::SeqCst);
            let _waiting = Waiting(&self.0);
            std::future::pending().await
        })
    }
}

#[test]
fn a_look_up_ends_when_its_client_has_gone() {
    let silent = Arc::new(Silent::default());
    let resolver = Arc::clone(&silent);
    let world = World::with(input(&["web.test"]), |config| {
        config.limits = Limits { resolve_time: Duration::from_secs(3600), ..Limits::default() };
        config.resolver = resolver;
    });
    let by_connect = || {
        let mut client = connect(world.http);
        client.write_all(b"CONNECT web.test:443 HTTP/1.1\r\n\r\n").unwrap();
        client
    };
    let by_socks = || {
        let mut client = connect(world.socks);
        client.write_all(b"\x05\x01\x00\x05\x01\x00\x03\x08web.test\x01\xbb").unwrap();
        client
    };
    let with_bytes = || {
        let mut client = connect(world.http);
        client.write_all(b"CONNECT web.test:443 HTTP/1.1\r\n\r\nQUIT\r\n").unwrap();
        client
    };
    let by_request = || {
        let mut client = connect(world.http);
        client.write_all(b"GET http://web.test:443/ HTTP/1.1\r\nHost: web.test:443\r\n\r\n").unwrap();
        client
    };
    let redirected = || {
        let found = enter::by_dns(&world, &"web.test.".parse().unwrap()).unwrap();
        world.redirected.to(SocketAddr::new(found, 443));
        connect(world.transparent)
    };
    let waiting = || silent.0.load(Ordering::SeqCst);
    for (open, end) in [
        (&by_connect as &dyn Fn() -> TcpStream, drop as fn(TcpStream)),
        (&by_connect, reset),
        (&by_socks, drop),
        (&with_bytes, reset),
        (&by_request, reset),
        (&redirected, reset),
    ] {
        let client = open();
        eventually("the look-up", || waiting() > 0);
        end(client);
        eventually("the end of the look-up", || waiting() == 0);
    }
    assert!(world.egress().summary().allowed.is_empty());
}

/// Resolver that answers when the gate opens, and counts the attempts that came to their look-up.
struct Gate {
    open: watch::Sender<bool>,
    came: AtomicUsize,
}

impl Resolver for Gate {
    fn lookup<'a>(&'a self, _name: &'a Name) -> Lookup<'a> {
        Box::pin(async move {
            self.open.subscribe().wait_for(|open| *open).await.unwrap();
            Ok(Resolved { addrs: vec![Ipv4Addr::LOCALHOST.into()], ..Resolved::default() })
        })
    }

    fn known(&self, _name: &Name) -> Option<Result<Resolved, ResolveError>> {
        self.came.fetch_add(1, Ordering::SeqCst);
        None
    }
}

#[test]
fn a_client_that_sends_all_at_once_and_listens_is_served() {
    let gate = Arc::new(Gate { open: watch::channel(false).0, came: AtomicUsize::new(0) });
    let at = server("127.0.0.1:0", |mut stream: TcpStream| {
        let got = support::read_all(&mut stream).unwrap();
        stream.write_all(&[b"got ", &got[..]].concat()).unwrap();
    });
    let port = at.port();
    let world = World::with(input(&[&format!("+web.test:{port}")]), |config| config.resolver = gate.clone());
    let connect_head = format!("CONNECT web.test:{port} HTTP/1.1\r\n\r\n").into_bytes();
    let socks = [&b"\x05\x01\x00\x05\x01\x00\x03\x08web.test"[..], &port.to_be_bytes()].concat();
    let begin = |to, bytes: &[u8]| {
        let mut client = connect(to);
        client.write_all(bytes).unwrap();
        client
    };
    let came = |count| eventually("the attempts", || gate.came.load(Ordering::SeqCst) == count);
    let mut clients = vec![begin(world.http, &connect_head), begin(world.socks, &socks)];
    came(2);
    // These bytes come when the request was read; those of the other clients are read with the request.
    for client in &mut clients {
        client.write_all(b"QUIT").unwrap();
    }
    clients.push(begin(world.http, &[&connect_head, &b"QUIT"[..]].concat()));
    clients.push(begin(world.socks, &[&socks, &b"QUIT"[..]].concat()));
    came(4);
    for client in &clients {
        client.shutdown(Shutdown::Write).unwrap();
    }
    // A client without bytes behind its request, which ends after the others, is taken for one that has gone.
    let mut gone = begin(world.http, &connect_head);
    gone.shutdown(Shutdown::Write).unwrap();
    assert!(read_head(&mut gone).starts_with("HTTP/1.1 400"));
    // Unread bytes are checked once in a second. A longer wait only makes the failure more certain.
    std::thread::sleep(Duration::from_millis(1500));
    gate.open.send(true).unwrap();
    for mut client in clients {
        let got = support::read_all(&mut client).unwrap();
        assert!(got.ends_with(b"got QUIT"), "{}", String::from_utf8_lossy(&got));
    }
}
