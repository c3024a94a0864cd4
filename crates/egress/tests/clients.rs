//! Harmless habits of clients work, and the record holds the address of each connection.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::rr::Name;
use nexus_egress::EventKind;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use support::{World, connect, echo, enter, eventually, input, read_all, server, tunnel};

#[test]
fn an_address_of_the_stub_is_its_name_by_every_proxy() {
    let port = server("127.0.0.1:0", echo).port();
    let world = World::of(input(&[&format!("+echo.test:{port}")]));
    world.resolver.set("echo.test", &[Ipv4Addr::LOCALHOST.into()]);
    let IpAddr::V4(synthetic) = enter::by_dns(&world, &Name::from_ascii("echo.test.").unwrap()).unwrap() else {
        panic!()
    };
    let by_socks = enter::by_socks(&world, 1, &synthetic.octets(), port).unwrap();
    let by_connect = tunnel(world.http, &format!("{synthetic}:{port}")).unwrap();
    for mut client in [by_socks, by_connect] {
        client.write_all(b"ping").unwrap();
        let mut back = [0; 4];
        client.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"ping");
    }
    assert!(
        world
            .events
            .all()
            .iter()
            .filter(|event| event.event == EventKind::Allow)
            .all(|event| event.host == "echo.test")
    );
    // One that stands for no name offers no flag: none would help.
    let other = Ipv4Addr::from(u32::from(synthetic) + 9);
    assert!(enter::by_socks(&world, 1, &other.octets(), port).is_err());
    assert_eq!(tunnel(world.http, &format!("{other}:{port}")).unwrap_err().0, 400);
    assert!(world.egress().summary().denied.iter().all(|denied| denied.allow_with.is_none()));
}

#[test]
fn one_empty_line_before_a_request_is_passed_over() {
    let port = server("127.0.0.1:0", |mut stream| {
        support::read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        support::read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").unwrap();
    })
    .port();
    let world = World::of(input(&[&format!("+web.test:{port}")]));
    world.resolver.set("web.test", &[Ipv4Addr::LOCALHOST.into()]);
    let get = format!("GET http://web.test:{port}/ HTTP/1.1\r\nHost: web.test:{port}\r\n\r\n");
    let mut client = connect(world.http);
    // Byte by byte, before the first request and between two.
    for byte in format!("\r\n{get}").bytes() {
        client.write_all(&[byte]).unwrap();
    }
    assert_eq!(support::response(&mut client).2, b"ok");
    client.write_all(format!("\r\n{get}").as_bytes()).unwrap();
    assert_eq!(support::response(&mut client).2, b"ok");
    for wrong in [format!("\r\n\r\n{get}"), format!("\n{get}"), format!("\r\r\n{get}"), format!(" \r\n{get}")] {
        let mut client = connect(world.http);
        client.write_all(wrong.as_bytes()).unwrap();
        let answer = read_all(&mut client).unwrap_or_default();
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{wrong:?}: {}", String::from_utf8_lossy(&answer));
    }
}

#[test]
fn the_record_says_which_address_answered() {
    let port = server("127.0.0.1:0", echo).port();
    let world = World::of(input(&[&format!("+echo.test:{port}")]));
    let silent = Ipv4Addr::new(127, 0, 0, 9);
    world.resolver.set("echo.test", &[silent.into(), Ipv4Addr::LOCALHOST.into()]);
    drop(tunnel(world.http, &format!("echo.test:{port}")).unwrap());
    eventually("the end in the record", || world.events.has(EventKind::Close));
    let closed = world.events.all().into_iter().find(|event| event.event == EventKind::Close).unwrap();
    assert_eq!(closed.dialed, Some(Ipv4Addr::LOCALHOST.into()));
}
