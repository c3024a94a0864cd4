//! The bound on connections from one sandbox, tried with many more than fit, by every way in.
//!
//! `NEXUS_SOAK_CLIENTS` sets how many are tried by each way (default 500; the promise is 10,000, at the bound that a
//! run has). The clients, and the server that they reach, live in a process of their own: both ends of everything would
//! not fit into one's descriptors.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::{Config, FileSink, Limits};
use nexus_policy::net::DenyCode;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::process::{open_descriptors, raise_descriptors, resident_kib};
use support::{TIMEOUT, World, eventually, field, host_port, input, read_head, status, try_connect};

const NAME: &str = "each_connection_beyond_the_bound_is_refused_at_once_and_a_place_given_back_serves_at_once";

/// Time limit for a refusal; shorter than every time limit of the egress below.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Number of clients beyond the bound that stay at the same time and send nothing.
const HEAP: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListenerKind {
    Http,
    Socks,
    Transparent,
    Dns,
    HostPort,
}

const DOORS: [ListenerKind; 5] =
    [ListenerKind::Http, ListenerKind::Socks, ListenerKind::Transparent, ListenerKind::Dns, ListenerKind::HostPort];

impl ListenerKind {
    fn of(self, world: &World) -> SocketAddr {
        match self {
            Self::Http => world.http,
            Self::Socks => world.socks,
            Self::Transparent => world.transparent,
            Self::Dns => world.dns_tcp,
            Self::HostPort => world.host_ports[0].1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The client got an answer with the reason.
    Told,
    /// The connection ended without an answer: the protocol has none for this.
    Ended,
}

/// Opens a connection and reads the first byte of its answer, or returns the kind of the refusal.
fn enter(door: ListenerKind, at: SocketAddr, server: u16) -> Result<TcpStream, Refused> {
    let mut stream = try_connect(at).map_err(|error| ended(&error))?;
    match door {
        ListenerKind::Http => {
            stream
                .write_all(format!("CONNECT idle.test:{server} HTTP/1.1\r\n\r\n").as_bytes())
                .map_err(|error| ended(&error))?;
            let head = read_head(&mut stream);
            match (status(&head), field(&head, "x-proxy-error")) {
                (200, None) => {}
                (429, Some("LIMIT_EXCEEDED")) => return Err(Refused::Told),
                (0, None) => return Err(Refused::Ended),
                _ => panic!("{head}"),
            }
        }
        ListenerKind::Socks => {
            let mut request = b"\x05\x01\x00\x05\x01\x00\x03\x09idle.test".to_vec();
            request.extend_from_slice(&server.to_be_bytes());
            stream.write_all(&request).map_err(|error| ended(&error))?;
            let mut reply = [0; 12];
            stream.read_exact(&mut reply).map_err(|error| ended(&error))?;
            assert_eq!(reply[..4], [5, 0, 5, 0]);
        }
        ListenerKind::Transparent | ListenerKind::HostPort => {}
        ListenerKind::Dns => {
            // A question for the address of idle.test, with its length.
            let question = b"\0\x1b\0\x07\x01\0\0\x01\0\0\0\0\0\0\x04idle\x04test\0\0\x01\0\x01";
            stream.write_all(question).map_err(|error| ended(&error))?;
        }
    }
    stream.read_exact(&mut [0]).map_err(|error| ended(&error))?;
    Ok(stream)
}

/// Checks that the error is not a time-out: a client that has to wait was not refused at once.
fn ended(error: &std::io::Error) -> Refused {
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe];
    assert!(kinds.contains(&error.kind()), "{error}");
    Refused::Ended
}

/// Starts a server that sends one byte to each connection and ends it when its client does.
fn greeting_server(port: u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    use tokio::io::{AsyncReadExt, AsyncWriteExt};
                    stream.write_all(b"!").await.ok();
                    // Until the client says something, ends its side or is gone: nothing more is wanted of it.
                    stream.read_u8().await.ok();
                });
            }
        });
    });
}

/// Holds connections in the other process, which waits for a line after each message.
fn hold(door: ListenerKind, at: SocketAddr, server: u16, bound: usize, beyond: usize) {
    let say = |words: String| {
        println!("\nsays {words}");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    };
    greeting_server(server);
    say("serving".into());
    let mut held: Vec<TcpStream> = (0..bound).map(|_| enter(door, at, server).unwrap()).collect();
    say("full".into());
    let (mut reported, mut slowest) = (0, Duration::ZERO);
    for _ in 0..beyond {
        let started = Instant::now();
        let refused = enter(door, at, server).unwrap_err();
        reported += usize::from(refused == Refused::Told);
        slowest = slowest.max(started.elapsed());
        assert!(slowest < AT_ONCE, "{door:?}: {slowest:?}");
    }
    say(format!("{reported} {}", slowest.as_millis()));
    let heap: Vec<TcpStream> = (0..HEAP).filter_map(|_| try_connect(at).ok()).collect();
    say("heap".into());
    drop(heap);
    // A connection that has a place keeps it.
    for stream in &mut held {
        stream.set_nonblocking(true).unwrap();
        // An answer over DNS has more than its first byte.
        let mut rest = [0; 512];
        if stream.read(&mut rest).is_ok_and(|count| count > 0) {
            assert_eq!(door, ListenerKind::Dns);
        }
        assert_eq!(stream.read(&mut rest).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    drop(held.pop());
    let started = Instant::now();
    let again = loop {
        if let Ok(stream) = enter(door, at, server) {
            break stream;
        }
        assert!(started.elapsed() < AT_ONCE, "the place that was given back is not to be had");
    };
    let took = started.elapsed();
    assert_eq!(enter(door, at, server).map(drop).map_err(drop), Err(()), "there was one place");
    say(format!("again {}", took.as_millis()));
    drop((held, again));
}

/// Handle of the other process.
struct Holder {
    child: Child,
    said: BufReader<ChildStdout>,
    to: Option<ChildStdin>,
}

impl Holder {
    fn start(door: ListenerKind, at: SocketAddr, server: u16, bound: usize, beyond: usize) -> Self {
        let place = DOORS.iter().position(|other| *other == door).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env("NEXUS_SOAK_HOLD", format!("{place} {at} {server} {bound} {beyond}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let to = child.stdin.take();
        Self { child, said, to }
    }

    /// Returns the next words of the other process, which then waits.
    fn says(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "the clients ended early");
            if let Some(words) = line.strip_prefix("says ") {
                return words.trim_end().to_owned();
            }
        }
    }

    fn go_on(&mut self) {
        self.to.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn end(mut self) {
        drop(self.to.take());
        // Its output is read to the end, or it could not end.
        std::io::copy(&mut self.said, &mut std::io::sink()).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn each_connection_beyond_the_bound_is_refused_at_once_and_a_place_given_back_serves_at_once() {
    let descriptors = raise_descriptors();
    if let Ok(to) = std::env::var("NEXUS_SOAK_HOLD") {
        let words: Vec<&str> = to.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        let server = u16::try_from(number(2)).unwrap();
        return hold(DOORS[number(0)], words[1].parse().unwrap(), server, number(3), number(4));
    }
    let total: usize = std::env::var("NEXUS_SOAK_CLIENTS").map_or(500, |text| text.parse().unwrap());
    // Of 10,000, those fit that fit in a run.
    let bound = total * Limits::default().clients / 10_000;
    assert!(bound as u64 * 2 + 1000 < descriptors, "{descriptors} descriptors are too few for {bound} clients");
    for door in DOORS {
        beyond_the_bound(door, bound, total - bound);
    }
}

fn beyond_the_bound(door: ListenerKind, bound: usize, beyond: usize) {
    let audit = tempfile::tempfile().unwrap();
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let mut rules = input(&["+idle.test:1-65535", "+127.0.0.1:1-65535"]);
    rules.host_ports.push(host_port(server));
    let world = World::with(rules, |config: &mut Config| {
        config.audit = Arc::new(FileSink::new(audit, u64::MAX));
        config.limits = Limits { clients: bound, head_time: Duration::from_secs(300), ..Limits::default() };
    });
    world.resolver.set("*", &[Ipv4Addr::LOCALHOST.into()]);
    let (memory, files) = (resident_kib(), open_descriptors());
    let mut holder = Holder::start(door, door.of(&world), server, bound, beyond);
    assert_eq!(holder.says(), "serving");
    world.redirected.to((Ipv4Addr::LOCALHOST, server).into());
    holder.go_on();

    assert_eq!(holder.says(), "full");
    let (memory_full, files_full) = (resident_kib(), open_descriptors());
    let each = memory_full.saturating_sub(memory) * 1024 / bound as u64;
    assert!(each < 16 * 1024, "{door:?}: {each} bytes of memory for each client");
    // One for the client, one for its server, and those of this test.
    assert!(files_full <= files + 2 * bound + 16, "{door:?}: {files_full} descriptors, {files} before");
    for other in DOORS {
        assert!(enter(other, other.of(&world), server).is_err(), "{door:?} is full, and {other:?} still serves");
    }
    holder.go_on();

    let said = holder.says();
    let (reported, slowest) = said.split_once(' ').unwrap();
    println!(
        "{door:?}: {bound} held, {each} B each; {beyond} refused, {reported} of them told; the slowest in {slowest} ms"
    );
    let expected = if door == ListenerKind::Http { beyond } else { 0 };
    assert_eq!(reported.parse::<usize>().unwrap(), expected, "{door:?}");
    holder.go_on();

    assert_eq!(holder.says(), "heap");
    let refused = || {
        let denied = world.egress().summary().denied;
        let limit = denied.into_iter().find(|denied| denied.code == DenyCode::LimitExceeded).unwrap();
        assert_eq!(limit.explanation, format!("the sandbox has {bound} connections already"));
        usize::try_from(limit.count).unwrap()
    };
    eventually("every refusal in the books", || refused() == beyond + HEAP + DOORS.len());
    let (memory_now, files_now) = (resident_kib(), open_descriptors());
    assert!(files_now <= files_full + 100, "{door:?}: {files_now} descriptors, {files_full} before");
    assert!(memory_now < memory_full + 8 * 1024, "{door:?}: {memory_now} KiB, {memory_full} before");
    holder.go_on();

    let said = holder.says();
    println!("{door:?}: {said} ms");
    assert!(said.starts_with("again "), "{said}");
    holder.end();
    eventually("the end of all", || open_descriptors() <= files + 16);
    let started = Instant::now();
    while enter(ListenerKind::Dns, world.dns_tcp, server).is_err() {
        assert!(started.elapsed() < TIMEOUT, "every place was given back, and none is to be had");
    }
}
