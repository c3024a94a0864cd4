//! SOCKS5: refusals, each with the reply that gives the reason.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::EventKind;
use rustix::net::{AddressFamily, SocketType};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use support::{World, connect, echo, input, read_all, server};

fn answer(world: &World, bytes: &[u8]) -> Vec<u8> {
    let mut client = connect(world.socks);
    client.write_all(bytes).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    read_all(&mut client).unwrap_or_default()
}

fn named(command: u8, name: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 5, command, 0, 3, u8::try_from(name.len()).unwrap()];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes
}

#[test]
fn only_connect_without_authentication_is_served() {
    let upstream = server("127.0.0.1:0", echo);
    let world = World::of(input(&[&format!("+echo.test:{}", upstream.port())]));
    world.resolver.set("echo.test", &[upstream.ip()]);
    let port = upstream.port();
    let reply = |code: u8| vec![5, 0, 5, code, 0, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(answer(&world, &named(2, "echo.test", port)), reply(7), "BIND");
    assert_eq!(answer(&world, &named(3, "echo.test", port)), reply(7), "UDP ASSOCIATE");
    assert_eq!(answer(&world, &named(9, "echo.test", port)), reply(7), "an unknown command");
    assert_eq!(answer(&world, &[5, 1, 0, 5, 1, 0, 9, 0, 0, 0]), reply(8), "an unknown kind of address");
    assert_eq!(answer(&world, &[5, 1, 0, 5, 1, 7, 1, 0, 0, 0]), reply(1), "a reserved byte");
    assert_eq!(answer(&world, &named(1, "echo.test", 0)), reply(1), "port 0");
    assert_eq!(answer(&world, &named(1, "denied.test", 443)), reply(2), "a denied name");
    assert_eq!(answer(&world, &[5, 1, 2]), [5, 0xff], "authentication only");
    assert_eq!(answer(&world, &[4, 1, 0, 80, 1, 2, 3, 4, 0]), [0, 0x5b, 0, 0, 0, 0, 0, 0], "SOCKS4");
    assert_eq!(answer(&world, &[4, 1, 0, 80, 0, 0, 0, 1, 0, b'a', 0]), [0, 0x5b, 0, 0, 0, 0, 0, 0], "SOCKS4a");
    assert_eq!(answer(&world, b"GET / HTTP/1.1\r\n\r\n"), [] as [u8; 0], "no SOCKS");
    assert!(world.events.all().iter().all(|event| event.event == EventKind::Deny));
    // The harmless twin, byte by byte.
    let mut client = connect(world.socks);
    for byte in named(1, "echo.test", port) {
        client.write_all(&[byte]).unwrap();
    }
    client.write_all(b"hello").unwrap();
    let mut got = [0; 17];
    client.read_exact(&mut got).unwrap();
    assert_eq!(got[..12], reply(0));
    assert_eq!(&got[12..], b"hello");
}

/// A port at which no process listens. A socket keeps it: the kernel gives a free port to the next process that asks for one.
fn closed_port() -> (SocketAddr, OwnedFd) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    (address, socket)
}

#[test]
fn a_closed_port_is_distinguished_from_a_denial() {
    let (gone, _bound) = closed_port();
    let world = World::of(input(&[&format!("+{gone}")]));
    let mut request = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    request.extend_from_slice(&gone.port().to_be_bytes());
    assert_eq!(answer(&world, &request)[3], 5);
}

/// Vector I09: the time for a request is for all of it, not for each byte.
#[test]
fn a_client_that_trickles_is_let_go_by_every_way() {
    let world = World::with(input(&["a.test"]), |config| config.limits.head_time = Duration::from_millis(400));
    for (what, at, begins, goes_on) in [
        ("HTTP", world.http, &b"CONNECT a.test:443 HTTP/1.1\r\nX: "[..], b'x'),
        ("SOCKS greeting", world.socks, &[5, 250], 1),
        ("SOCKS request", world.socks, &[5, 1, 0, 5, 1, 0, 3, 250], b'a'),
        ("DNS", world.dns_tcp, &[0x0f, 0xff], 0),
    ] {
        let mut client = connect(at);
        client.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        client.write_all(begins).unwrap();
        let began = Instant::now();
        let mut let_go = || -> bool {
            let mut answer = [0; 1024];
            loop {
                match client.read(&mut answer) {
                    Ok(0) => return true,
                    // The answer to a greeting, or the words that it was too slow.
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Err(_) => return true,
                }
                if client.write_all(&[goes_on]).is_err() {
                    return true;
                }
                if began.elapsed() > Duration::from_secs(10) {
                    return false;
                }
            }
        };
        assert!(let_go(), "{what}: after {:?}", began.elapsed());
        assert!(began.elapsed() >= Duration::from_millis(300), "{what}: at once");
    }
}
