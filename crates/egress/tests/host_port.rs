//! Ports of the host's loopback through the egress: any bytes, decided and recorded like every connection.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_egress::EventKind;
use nexus_policy::net::{DenyCode, Ingress, PolicyInput};
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use support::{World, connect, echo, eventually, host_port, policy, read_all, server, try_connect};

fn opened(port: u16) -> PolicyInput {
    PolicyInput { host_ports: vec![host_port(port)], generation: 1, ..PolicyInput::default() }
}

/// Binds a port without listening on it: connections are refused, and no other test gets the port.
fn silent_port() -> (OwnedFd, u16) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let bound = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    (socket, bound.port())
}

fn ways(world: &World) -> Vec<(EventKind, Option<Ingress>, DenyCode)> {
    let events = world.events.all();
    events
        .into_iter()
        .map(|event| (event.event, event.way, event.code))
        .filter(|(kind, ..)| *kind != EventKind::Policy)
        .collect()
}

#[test]
fn bytes_pass_both_ways_and_a_half_closed_end_is_kept() {
    // The server speaks first, and answers after the end of what it is sent.
    let port = server((Ipv4Addr::LOCALHOST, 0), |mut stream| {
        stream.write_all(b"ready\0").unwrap();
        let all = read_all(&mut stream).unwrap();
        stream.write_all(&all.len().to_be_bytes()).unwrap();
        stream.write_all(&all).unwrap();
    })
    .port();
    let world = World::of(opened(port));
    let mut client = connect(world.host_ports[0].1);
    let mut greeting = [0; 6];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"ready\0");
    let sent: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_ne_bytes).collect();
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let got = read_all(&mut client).unwrap();
    assert_eq!(got[..8], sent.len().to_be_bytes());
    assert_eq!(got[8..], sent);
    eventually("the end is recorded", || ways(&world).len() == 2);
    let way = Some(Ingress::HostPort);
    assert_eq!(ways(&world), [(EventKind::Allow, way, DenyCode::Ok), (EventKind::Close, way, DenyCode::Ok)]);
    assert_eq!(world.egress().summary().allowed[0].host, "127.0.0.1");
}

#[test]
fn a_service_that_is_away_is_a_reset_and_is_recorded() {
    let (_bound, port) = silent_port();
    let world = World::of(opened(port));
    // The reset may come before the connect has returned.
    let answer = try_connect(world.host_ports[0].1).ok().and_then(|mut stream| read_all(&mut stream));
    assert_eq!(answer, None);
    eventually("the failure is recorded", || ways(&world).iter().any(|(kind, ..)| *kind == EventKind::Fail));
}

#[test]
fn a_policy_without_the_port_cuts_its_connections() {
    let port = server((Ipv4Addr::LOCALHOST, 0), echo).port();
    let world = World::of(opened(port));
    let talk = |stream: &mut TcpStream| {
        stream.write_all(b"x").unwrap();
        let mut one = [0];
        stream.read_exact(&mut one).map(|()| one)
    };
    let mut client = connect(world.host_ports[0].1);
    assert_eq!(talk(&mut client).unwrap(), *b"x");
    let closed = policy(PolicyInput { generation: 2, ..PolicyInput::default() });
    assert_eq!(world.egress().reload(closed).unwrap(), 1);
    assert_eq!(read_all(&mut client), None);
    let mut later = connect(world.host_ports[0].1);
    assert_eq!(read_all(&mut later), None);
    eventually("the denial is recorded", || {
        ways(&world).contains(&(EventKind::Deny, Some(Ingress::HostPort), DenyCode::NotInAllowlist))
    });
}

#[test]
fn the_end_of_the_egress_ends_every_connection() {
    let port = server((Ipv4Addr::LOCALHOST, 0), echo).port();
    let mut world = World::of(opened(port));
    let mut client = connect(world.host_ports[0].1);
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    world.egress.take().unwrap().stop().unwrap();
    assert!(read_all(&mut client).is_none_or(|rest| rest.is_empty()));
    assert!(try_connect(world.host_ports[0].1).is_err());
}
