//! A world for one test: an egress, servers at any address, a resolver that follows a script, a record of events.
//!
//! Tests that dial other addresses than loopback run in a network namespace of their own in which every address is
//! local: a packet to anywhere ends at the test's own servers, and none ever leaves.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::expect_used, clippy::missing_panics_doc, reason = "a test stops at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "tests are clients, and clients connect")]

pub mod again;
pub mod enter;
mod hello;
pub mod process;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use hello::{client as tls_client, hello};
use nexus_egress::{
    AuditError, Clock, Config, Destinations, Egress, Event, EventKind, Listeners, OwnAddresses, Scripted, Sink,
};
use nexus_policy::net::{HostPort, Policy, PolicyInput, Port, Source, parse_allow, parse_allow_private, parse_deny};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit for anything that a test waits for.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs the test of this thread again in a network namespace of its own. Returns true in the outer process, which then
/// has nothing more to do.
pub fn outside_of_netns() -> bool {
    if again::is_inner() {
        return false;
    }
    let setup = format!("{} && exec \"$0\" \"$@\"", again::ALL_LOCAL);
    again::passes_again(Command::new("unshare").args(["-rn", "sh", "-c", &setup]));
    true
}

/// Works like [`outside_of_netns`] with the addresses of loopback alone, which the test adds to.
pub fn outside_of_small_netns() -> bool {
    if again::is_inner() {
        return false;
    }
    let setup = "ip link set lo up && exec \"$0\" \"$@\"";
    again::passes_again(Command::new("unshare").args(["-rn", "sh", "-c", setup]));
    true
}

/// Waits until `done` holds.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < end, "not within {TIMEOUT:?}: {what}");
        std::thread::yield_now();
    }
}

/// Sink that keeps events in memory, without those of policies; the lines have all. It can be made to fail.
#[derive(Default)]
pub struct Memory {
    events: Mutex<Vec<Event>>,
    lines: Mutex<Vec<String>>,
    broken: Mutex<bool>,
}

impl Memory {
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    pub fn all(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn has(&self, kind: EventKind) -> bool {
        self.events.lock().unwrap().iter().any(|event| event.event == kind)
    }

    pub fn fail(&self, broken: bool) {
        *self.broken.lock().unwrap() = broken;
    }
}

impl Sink for Memory {
    fn record(&self, event: &Event) -> Result<(), AuditError> {
        if *self.broken.lock().unwrap() {
            return Err(AuditError::Other("made to fail".into()));
        }
        self.lines.lock().unwrap().push(event.line()?);
        if event.event != EventKind::Policy {
            self.events.lock().unwrap().push(event.clone());
        }
        Ok(())
    }
}

/// Source of destinations that gives one address for every redirected connection.
#[derive(Default)]
pub struct Redirected(Mutex<Option<SocketAddr>>);

impl Redirected {
    pub fn to(&self, address: SocketAddr) {
        *self.0.lock().unwrap() = Some(address);
    }
}

impl Destinations for Redirected {
    fn of(&self, _connection: BorrowedFd<'_>, _v6: bool) -> io::Result<SocketAddr> {
        self.0.lock().unwrap().ok_or_else(|| io::Error::other("no destination"))
    }
}

/// Source of own addresses that has none: in the namespaces of these tests every address is local, and stands for a
/// foreign one.
#[derive(Clone, Copy)]
pub struct NoHost;

impl OwnAddresses for NoHost {
    fn is_own(&self, _to: SocketAddr) -> io::Result<bool> {
        Ok(false)
    }

    fn changes(&self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// Builds a policy from rules as flags: `allow`, `-deny`, `+private`.
pub fn input(rules: &[&str]) -> PolicyInput {
    let mut input = PolicyInput { generation: 1, ..PolicyInput::default() };
    for rule in rules {
        let source = Source::flag(*rule);
        match (rule.strip_prefix('-'), rule.strip_prefix('+')) {
            (Some(deny), _) => input.deny_any(parse_deny(deny, source).unwrap()),
            (_, Some(private)) => input.allow_any(parse_allow_private(private, source).unwrap()),
            (None, None) => input.allow.push(parse_allow(rule, source).unwrap()),
        }
    }
    input
}

/// Builds `--allow-host-port` for this port.
pub fn host_port(port: u16) -> HostPort {
    HostPort { port: Port::new(port).unwrap(), source: Source::flag(port.to_string()) }
}

pub fn policy(input: PolicyInput) -> Arc<Policy> {
    Arc::new(Policy::build(input).unwrap())
}

/// Egress with every listener on loopback.
pub struct World {
    pub egress: Option<Egress>,
    pub http: SocketAddr,
    pub socks: SocketAddr,
    pub transparent: SocketAddr,
    pub dns_udp: SocketAddr,
    pub dns_tcp: SocketAddr,
    /// Addresses of the listeners of open ports of the host's loopback, each with that port.
    pub host_ports: Vec<(u16, SocketAddr)>,
    pub resolver: Arc<Scripted>,
    pub events: Arc<Memory>,
    pub redirected: Arc<Redirected>,
}

impl World {
    pub fn of(input: PolicyInput) -> Self {
        Self::with(input, |_| {})
    }

    pub fn with(input: PolicyInput, change: impl FnOnce(&mut Config)) -> Self {
        let events = Arc::new(Memory::default());
        let resolver = Arc::new(Scripted::default());
        let redirected = Arc::new(Redirected::default());
        let mut config = Config::new(policy(input), Clock::start(), events.clone());
        config.resolver = resolver.clone();
        config.destinations = redirected.clone();
        config.own_addresses = Some(Arc::new(NoHost));
        change(&mut config);
        let listener = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (http, socks, transparent, dns_tcp) = (listener(), listener(), listener(), listener());
        let dns_udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let opened = config.policy.host_ports().iter().map(|open| open.port.number());
        let host_ports: Vec<_> =
            opened.map(|port| (port, listener())).map(|(port, one)| (port, at(&one), one)).collect();
        Self {
            host_ports: host_ports.iter().map(|(port, at, _)| (*port, *at)).collect(),
            http: at(&http),
            socks: at(&socks),
            transparent: at(&transparent),
            dns_udp: dns_udp.local_addr().unwrap(),
            dns_tcp: at(&dns_tcp),
            resolver,
            events,
            redirected,
            egress: Some(
                Egress::start(
                    config,
                    Listeners {
                        http: Some(http),
                        socks: Some(socks),
                        transparent_v4: Some(transparent),
                        transparent_v6: None,
                        dns_udp: Some(dns_udp),
                        dns_tcp: Some(dns_tcp),
                        host_ports: host_ports.into_iter().map(|(port, _, one)| (port, one)).collect(),
                    },
                )
                .unwrap(),
            ),
        }
    }

    pub fn egress(&self) -> &Egress {
        self.egress.as_ref().unwrap()
    }

    /// Sets this answer for every name except denied ones, which have no address.
    pub fn answer_all(&self, addrs: &[std::net::IpAddr]) {
        self.egress().policy().followed().for_each(|name| self.resolver.set(name.as_str(), &[]));
        self.resolver.set("*", addrs);
    }

    /// Takes the names that were looked up for connections.
    pub fn take_asked(&self) -> Vec<String> {
        let policy = self.egress().policy();
        let is_followed = |asked: &String| policy.followed().any(|name| name.as_str() == asked);
        self.resolver.take_asked().into_iter().filter(|asked| !is_followed(asked)).collect()
    }
}

pub fn connect(to: SocketAddr) -> TcpStream {
    try_connect(to).unwrap()
}

/// Connects like [`connect`], but the other end may reset at once.
pub fn try_connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads to the end of a head and returns it as text.
pub fn read_head(stream: &mut impl Read) -> String {
    let mut head = Vec::new();
    let mut one = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut one) {
            Ok(1) => head.push(one[0]),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&head)),
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Reads everything until the end; a reset is `None`.
pub fn read_all(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    match stream.read_to_end(&mut all) {
        Ok(_) => Some(all),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("{error}"),
    }
}

pub fn status(head: &str) -> u16 {
    head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

/// Reads one response with its body (by Content-Length).
pub fn response(stream: &mut impl Read) -> (u16, String, Vec<u8>) {
    let head = read_head(stream);
    let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (status(&head), head, body)
}

/// Opens a tunnel by CONNECT, or returns the answer that refuses it.
pub fn tunnel(proxy: SocketAddr, authority: &str) -> Result<TcpStream, (u16, String, Vec<u8>)> {
    let mut stream = connect(proxy);
    stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes()).unwrap();
    let head = read_head(&mut stream);
    if status(&head) == 200 {
        return Ok(stream);
    }
    let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    Err((status(&head), head, body))
}

/// Starts a server that treats each connection with `serve`, in a thread each. It ends with the test process.
pub fn server(at: impl std::net::ToSocketAddrs, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind(at).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Echoes until the end of the input.
pub fn echo(mut stream: TcpStream) {
    let mut copy = stream.try_clone().unwrap();
    // A reset by the egress is part of some tests.
    if io::copy(&mut copy, &mut stream).is_ok() {
        stream.shutdown(std::net::Shutdown::Write).ok();
    }
}
