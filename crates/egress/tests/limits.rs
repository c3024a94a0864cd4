//! The memory and work that a sandbox causes in the egress are bounded for all of its connections together.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::Limits;
use nexus_model::capability::NetMode;
use nexus_policy::net::PolicyInput;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::{World, connect, eventually, field, input, read_head, server, status, tunnel};

#[test]
fn unfinished_heads_share_one_budget() {
    let limits = Limits { heads_bytes: 512 * 1024, head_time: Duration::from_secs(300), ..Limits::default() };
    let world = World::with(input(&["a.test"]), |config| config.limits = limits);
    let unfinished = || {
        let mut client = connect(world.http);
        client.write_all(b"GET http://a.test/ HTTP/1.1\r\n").unwrap();
        for _ in 0..60 {
            // A refusal ends the connection meanwhile.
            if client.write_all(&[&[b'a'; 10][..], b": ", &[b'x'; 986], b"\r\n"].concat()).is_err() {
                break;
            }
        }
        client
    };
    let clients: Vec<TcpStream> = (0..32).map(|_| unfinished()).collect();
    let refused = || {
        let denied = world.egress().summary().denied;
        denied
            .iter()
            .filter(|one| one.explanation.contains("too many unfinished requests"))
            .map(|one| one.count)
            .sum::<u64>()
    };
    eventually("most of them refused", || refused() >= 16);
    assert!(refused() < 32, "some fit");
    // A head of usual size needs no share.
    let asked = || {
        let mut client = connect(world.http);
        client.write_all(b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n").unwrap();
        let head = read_head(&mut client);
        (status(&head), field(&head, "x-proxy-error").map(str::to_owned))
    };
    assert_eq!(asked(), (403, Some("NOT_IN_ALLOWLIST".into())));
    drop(clients);
    // What was held is given back.
    let before = refused();
    eventually("room for another", || {
        let mut client = unfinished();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let answered = std::io::Read::read(&mut client, &mut [0]).is_ok();
        !answered && refused() >= before
    });
}

#[test]
fn unfinished_heads_of_answers_share_the_same_budget() {
    const CLIENTS: usize = 32;
    let (sent, closed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (sending, closing) = (Arc::clone(&sent), Arc::clone(&closed));
    let upstream = server("127.0.0.1:0", move |mut stream| {
        if read_head(&mut stream).starts_with("GET /small ") {
            return stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        }
        let head = [&b"HTTP/1.1 200 OK\r\n"[..], &[&b"x: "[..], &[b'x'; 995], b"\r\n"].concat().repeat(60)].concat();
        // A refusal ends the connection meanwhile, and the reading too.
        if stream.write_all(&head).is_ok() {
            sending.fetch_add(1, Ordering::Relaxed);
        }
        support::read_all(&mut stream);
        closing.fetch_add(1, Ordering::Relaxed);
    });
    let limits = Limits { heads_bytes: 512 * 1024, ..Limits::default() };
    let rules = PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&["+127.0.0.1:1-65535"]) };
    let world = World::with(rules, |config| config.limits = limits);
    let ask = |path: &str| {
        let mut client = connect(world.http);
        write!(client, "GET http://{upstream}/{path} HTTP/1.1\r\nHost: {upstream}\r\n\r\n").unwrap();
        client
    };
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| ask("large")).collect();
    eventually("most of them refused", || closed.load(Ordering::Relaxed) >= CLIENTS / 2);
    assert!(closed.load(Ordering::Relaxed) < CLIENTS && sent.load(Ordering::Relaxed) > 0, "some fit");
    // A head of usual size needs no share.
    assert_eq!(status(&read_head(&mut ask("small"))), 204);
    // What was held is given back.
    clients.clear();
    eventually("all of them over", || closed.load(Ordering::Relaxed) == CLIENTS);
}

/// Creates an open network in which `serve` answers every request, and returns the server's address.
fn answered_by(serve: fn(TcpStream), limits: Limits) -> (World, std::net::SocketAddr) {
    let upstream = server("127.0.0.1:0", serve);
    let rules = PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&["+127.0.0.1:1-65535"]) };
    (World::with(rules, |config| config.limits = limits), upstream)
}

#[test]
fn the_head_of_a_request_counts_until_its_answer() {
    const CLIENTS: usize = 32;
    let silent = |mut stream: TcpStream| {
        support::read_all(&mut stream);
    };
    let limits = Limits { heads_bytes: 512 * 1024, ..Limits::default() };
    let (world, upstream) = answered_by(silent, limits);
    let field = [&b"x: "[..], &[b'x'; 995], b"\r\n"].concat().repeat(60);
    let ask = || {
        let mut client = connect(world.http);
        write!(client, "GET http://{upstream}/ HTTP/1.1\r\nHost: {upstream}\r\n").unwrap();
        // A refusal ends the connection meanwhile.
        if client.write_all(&field).is_ok() {
            client.write_all(b"\r\n").ok();
        }
        client
    };
    let clients: Vec<TcpStream> = (0..CLIENTS).map(|_| ask()).collect();
    let counted = |text: &str| {
        let summary = world.egress().summary();
        let denied = summary.denied.iter().filter(|one| one.explanation.contains(text));
        denied.map(|one| one.count).sum::<u64>()
    };
    eventually("most of them refused", || counted("too many unfinished requests") >= 16);
    assert!(counted("too many unfinished requests") < CLIENTS as u64, "some fit");
    drop(clients);
}

#[test]
fn an_endless_row_of_interim_answers_ends() {
    for minor in [0, 1] {
        let (world, upstream) = answered_by(
            |mut stream| {
                read_head(&mut stream);
                while stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n").is_ok() {}
            },
            Limits::default(),
        );
        let mut client = connect(world.http);
        write!(client, "GET http://{upstream}/ HTTP/1.{minor}\r\nHost: {upstream}\r\n\r\n").unwrap();
        let said = support::read_all(&mut client).unwrap_or_default();
        assert!(said.len() < 100_000, "{}", said.len());
    }
}

#[test]
fn the_head_of_an_answer_is_whole_in_time_once_it_begins() {
    let limits = Limits { head_time: Duration::from_millis(50), ..Limits::default() };
    let (world, upstream) = answered_by(
        |mut stream| {
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").unwrap();
            support::read_all(&mut stream);
        },
        limits,
    );
    let mut client = connect(world.http);
    write!(client, "GET http://{upstream}/ HTTP/1.1\r\nHost: {upstream}\r\n\r\n").unwrap();
    let (code, _, body) = support::response(&mut client);
    assert_eq!(code, 502);
    assert!(String::from_utf8(body).unwrap().contains("is not whole after"));
}

#[test]
fn a_long_question_is_let_go_before_it_is_read() {
    let world = World::with(input(&["a.test"]), |config| config.limits.head_time = Duration::from_secs(300));
    let mut client = connect(world.dns_tcp);
    client.write_all(&[0x10, 0x01]).unwrap();
    assert!(support::read_all(&mut client).is_none_or(|said| said.is_empty()));
}

#[test]
fn unread_downloads_hold_little_memory_of_the_kernel() {
    const TUNNELS: usize = 48;
    let (send, sent) = channel();
    let upstream = server("127.0.0.1:0", move |mut stream| {
        stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&stream, 64 * 1024).unwrap();
        let (mut total, part) = (0_usize, [b'x'; 16 * 1024]);
        while let Ok(count) = stream.write(&part) {
            total += count;
        }
        send.send(total).unwrap();
        // Held until the end of the test.
        support::read_all(&mut stream);
    });
    let world = World::of(PolicyInput { mode: Some(NetMode::Unrestricted), ..input(&["+127.0.0.1:1-65535"]) });
    let target = format!("{}:{}", Ipv4Addr::LOCALHOST, upstream.port());
    let clients: Vec<TcpStream> = (0..TUNNELS).map(|_| tunnel(world.http, &target).unwrap()).collect();
    let mut all: Vec<usize> = clients.iter().map(|_| sent.recv_timeout(support::TIMEOUT).unwrap()).collect();
    all.sort_unstable();
    println!("{all:?}");
    // The kernel tunes the buffers of 16. Of each other one the two sockets of the egress and both ends hold something.
    assert!(all[TUNNELS - 17] < 2 * 1024 * 1024, "{all:?}");
}

#[test]
fn a_client_that_is_refused_without_end_is_slowed_down() {
    const REQUESTS: u64 = 400;
    let world = World::of(input(&["a.test"]));
    let started = Instant::now();
    let mut client = connect(world.http);
    let mut writer = client.try_clone().unwrap();
    let write = std::thread::spawn(move || {
        for _ in 0..REQUESTS {
            writer.write_all(b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n").unwrap();
        }
    });
    for at in 0..REQUESTS {
        let (code, ..) = support::response(&mut client);
        assert_eq!(code, 403);
        // Who is refused by mistake hears it at once.
        assert!(at > 100 || started.elapsed() < Duration::from_secs(5), "{at}: {:?}", started.elapsed());
    }
    write.join().unwrap();
    // 256 at once, 100 a second from then on.
    assert!(started.elapsed() > Duration::from_millis(1300), "{:?}", started.elapsed());
}

#[test]
fn a_method_without_end_shares_the_budget_of_heads() {
    const CLIENTS: usize = 64;
    if support::outside_of_netns() {
        return;
    }
    let at = server("127.0.0.1:80", support::echo);
    let limits = Limits { heads_bytes: 64 * 1024, hello_time: Duration::from_secs(300), ..Limits::default() };
    let world = World::with(input(&["+web.test:80"]), |config| config.limits = limits);
    world.resolver.set("web.test", &[at.ip()]);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| tunnel(world.http, "web.test:80").unwrap()).collect();
    // In several parts, so that the buffers grow beyond the one read that is free.
    for bytes in [4500, 500, 500, 500, 500, 500, 500] {
        for client in &mut clients {
            // A refusal ends the connection meanwhile.
            client.write_all(&vec![b'A'; bytes]).ok();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = || {
        let denied = world.egress().summary().denied;
        let heads = denied.iter().filter(|one| one.explanation.contains("too many unfinished requests"));
        heads.map(|one| one.count).sum::<u64>()
    };
    eventually("most of them refused", || refused() >= CLIENTS as u64 / 4);
    assert!(refused() < CLIENTS as u64, "some fit");
    drop(clients);
}
