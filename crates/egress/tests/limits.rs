//! What a sandbox makes the egress hold or do is bounded for all of its connections together.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::Limits;
use nexus_model::capability::NetMode;
use nexus_policy::net::PolicyInput;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
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
    let mut all: Vec<usize> = clients.iter().map(|_| sent.recv_timeout(support::PATIENCE).unwrap()).collect();
    all.sort_unstable();
    println!("{all:?}");
    // The kernel tunes the buffers of 16. Of each other one the two sockets of the egress and both ends hold something.
    assert!(all[TUNNELS - 17] < 2 * 1024 * 1024, "{all:?}");
}

#[test]
fn a_client_that_is_refused_without_end_is_slowed_down() {
    const REQUESTS: u64 = 400;
    let world = World::of(input(&["a.test"]));
    let begun = Instant::now();
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
        assert!(at > 100 || begun.elapsed() < Duration::from_secs(5), "{at}: {:?}", begun.elapsed());
    }
    write.join().unwrap();
    // 256 at once, 100 a second from then on.
    assert!(begun.elapsed() > Duration::from_millis(1300), "{:?}", begun.elapsed());
}
