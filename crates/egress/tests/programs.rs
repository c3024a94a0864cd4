//! The egress asks for a connection's program at the right time and with the right ends, and uses the answer.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::rr::Name;
use nexus_egress::{Connection, EventKind, Programs};
use nexus_policy::net::Program;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::{World, connect, echo, enter, input, response, server, status, try_connect, tunnel};

/// Finder that gives one answer and remembers the connections that it was asked about.
#[derive(Default)]
struct Told {
    answer: Mutex<Option<String>>,
    asked: Mutex<Vec<Connection>>,
    at_once: AtomicBool,
    overlapped: AtomicBool,
    slow: AtomicBool,
    panics: AtomicBool,
    hangs: AtomicBool,
}

impl Told {
    fn is(&self, program: &str) {
        *self.answer.lock().unwrap() = Some(program.to_owned());
    }

    fn take(&self) -> Vec<Connection> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Programs for Told {
    fn who(&self, connection: Connection) -> Option<Program> {
        if self.at_once.swap(true, Ordering::SeqCst) {
            self.overlapped.store(true, Ordering::SeqCst);
        }
        self.asked.lock().unwrap().push(connection);
        if self.slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(400));
        }
        while self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.at_once.store(false, Ordering::SeqCst);
        assert!(!self.panics.load(Ordering::SeqCst), "as the test wants it");
        self.answer.lock().unwrap().as_deref().map(|path| Program::parse(path).unwrap())
    }
}

fn world(rules: &[&str]) -> (World, Arc<Told>) {
    let reported = Arc::new(Told::default());
    let programs = Arc::clone(&reported);
    let world = World::with(input(rules), |config| config.programs = programs);
    world.resolver.set("*", &["127.0.0.1".parse().unwrap()]);
    (world, reported)
}

fn web() -> SocketAddr {
    server("127.0.0.1:0", |mut stream| {
        loop {
            let head = support::read_head(&mut stream);
            if head.is_empty() || stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    })
}

fn get(stream: &mut TcpStream, host: &str, port: u16) -> u16 {
    write!(stream, "GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").unwrap();
    response(stream).0
}

#[test]
fn only_what_a_rule_for_one_program_names_is_looked_up() {
    let target = server("127.0.0.1:0", echo);
    let port = target.port();
    let (world, reported) = world(&[&format!("+a.test:{port}"), &format!("+b.test:{port}@/bin/x")]);
    tunnel(world.http, &format!("a.test:{port}")).unwrap();
    tunnel(world.http, &format!("c.test:{port}")).unwrap_err();
    tunnel(world.http, &format!("127.0.0.1:{port}")).unwrap_err();
    assert_eq!(reported.take(), []);
    // The other port as well: what is offered for it depends on who asks.
    for wrong in [port, 1] {
        tunnel(world.http, &format!("b.test:{wrong}")).unwrap_err();
        assert_eq!(reported.take().len(), 1);
    }
}

#[test]
fn every_way_asks_with_the_clients_own_two_ends() {
    let target = web();
    let port = target.port();
    let (world, reported) = world(&[&format!("+a.test:{port}@/bin/x")]);
    reported.is("/bin/x");
    let mut kept = connect(world.http);
    assert_eq!(get(&mut kept, "a.test", port), 200);
    let http = Connection { local: kept.local_addr().unwrap(), remote: world.http };
    assert_eq!(reported.take(), [http]);
    assert_eq!(get(&mut kept, "a.test", port), 200);
    assert_eq!(reported.take(), [], "once for a connection");

    let stream = tunnel(world.http, &format!("a.test:{port}")).unwrap();
    assert_eq!(reported.take(), [Connection { local: stream.local_addr().unwrap(), remote: world.http }]);
    let stream = enter::by_socks(&world, 3, b"a.test", port).unwrap();
    assert_eq!(reported.take(), [Connection { local: stream.local_addr().unwrap(), remote: world.socks }]);

    // A redirected client knows nothing of the egress: its other end is where it was going.
    let meant = SocketAddr::new(enter::by_dns(&world, &Name::from_ascii("a.test.").unwrap()).unwrap(), port);
    assert_eq!(reported.take(), [], "a question for a name has no program");
    let mut stream = enter::by_transparent(&world, meant).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
    assert_eq!(response(&mut stream).0, 200);
    assert_eq!(reported.take(), [Connection { local: stream.local_addr().unwrap(), remote: meant }]);

    let allowed: Vec<_> = world.events.take().into_iter().filter(|event| event.event == EventKind::Allow).collect();
    assert_eq!(allowed.len(), 4);
    assert!(allowed.iter().all(|event| event.program.as_deref() == Some("/bin/x")), "{allowed:?}");
}

#[test]
fn another_program_no_program_and_a_panic_are_all_refused() {
    let target = server("127.0.0.1:0", echo);
    let authority = format!("a.test:{}", target.port());
    let (world, reported) = world(&[&format!("+{authority}@/bin/x")]);
    let body = || String::from_utf8(tunnel(world.http, &authority).unwrap_err().2).unwrap();
    assert!(body().contains("it is not known which program this is"), "{}", body());
    reported.is("/bin/y");
    assert!(body().contains("this is /bin/y"), "{}", body());
    reported.is("/bin/x");
    tunnel(world.http, &authority).unwrap();
    reported.panics.store(true, Ordering::SeqCst);
    assert!(body().contains("it is not known"), "{}", body());
}

#[test]
fn many_wait_for_their_turn_and_others_do_not_wait_for_them() {
    let target = server("127.0.0.1:0", echo);
    let port = target.port();
    let (world, reported) = world(&[&format!("+a.test:{port}@/bin/x"), &format!("+b.test:{port}")]);
    reported.is("/bin/x");
    reported.slow.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..20)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream = try_connect(world.http).unwrap();
                    write!(stream, "CONNECT a.test:{port} HTTP/1.1\r\n\r\n").unwrap();
                    status(&support::read_head(&mut stream))
                })
            })
            .collect();
        support::eventually("the first look-up", || !reported.asked.lock().unwrap().is_empty());
        let began = Instant::now();
        tunnel(world.http, &format!("b.test:{port}")).unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "it waited for look-ups: {:?}", began.elapsed());
        // Twenty take eight seconds; no connection waits for longer than five, and is then without an owner.
        let codes: Vec<u16> = asked.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(codes.contains(&200) && codes.contains(&403), "{codes:?}");
    });
    assert!(reported.take().len() < 20);
    assert!(!reported.overlapped.load(Ordering::SeqCst), "two were looked up at a time");
}

#[test]
fn a_look_up_that_hangs_is_given_up_and_keeps_no_end_waiting() {
    let target = server("127.0.0.1:0", echo);
    let authority = format!("a.test:{}", target.port());
    let (mut world, reported) = world(&[&format!("+{authority}@/bin/x")]);
    reported.is("/bin/x");
    reported.hangs.store(true, Ordering::SeqCst);
    tunnel(world.http, &authority).unwrap_err();
    let mut waiting = connect(world.http);
    write!(waiting, "CONNECT {authority} HTTP/1.1\r\n\r\n").unwrap();
    support::eventually("the next look-up", || reported.asked.lock().unwrap().len() == 2);
    let began = Instant::now();
    world.egress.take().unwrap().stop().unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    reported.hangs.store(false, Ordering::SeqCst);
}
