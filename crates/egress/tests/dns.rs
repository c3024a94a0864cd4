//! The DNS stub, and redirected connections whose destination the kernel reports.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name, RData, RecordType};
use nexus_egress::EventKind;
use nexus_policy::net::{Budget, DenyCode, PolicyInput};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use support::{World, connect, echo, input, outside_of_netns, server, try_connect};

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(77, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.queries.push(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.edns = Some(Edns::new());
    message
}

/// Sends bytes and a good question after them, so that a missing answer is noticed without waiting.
fn raw(world: &World, bytes: &[u8]) -> Option<Message> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(support::TIMEOUT)).unwrap();
    socket.send_to(bytes, world.dns_udp).unwrap();
    let mut last = query("allowed.test.", RecordType::A);
    last.metadata.id = 1;
    socket.send_to(&last.to_vec().unwrap(), world.dns_udp).unwrap();
    let mut answer = [0; 2048];
    let count = socket.recv(&mut answer).unwrap();
    let answer = Message::from_vec(&answer[..count]).unwrap();
    (answer.metadata.id != 1).then_some(answer)
}

fn asked(world: &World, name: &str, kind: RecordType) -> Message {
    raw(world, &query(name, kind).to_vec().unwrap()).unwrap()
}

fn addresses(message: &Message) -> Vec<IpAddr> {
    let of = |data: &RData| match data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    };
    message.answers.iter().filter_map(|record| of(&record.data)).collect()
}

#[test]
fn only_allowed_names_get_addresses_and_nothing_is_forwarded() {
    let world = World::of(input(&["allowed.test", "*.below.test:22", "-no.below.test"]));
    let first = asked(&world, "allowed.test.", RecordType::A);
    assert_eq!(first.metadata.response_code, ResponseCode::NoError);
    assert_eq!(addresses(&first).len(), 1);
    assert_eq!(addresses(&asked(&world, "ALLOWED.test.", RecordType::A)), addresses(&first), "a stable answer");
    let six = addresses(&asked(&world, "allowed.test.", RecordType::AAAA));
    assert!(six[0].is_ipv6());
    assert_ne!(addresses(&asked(&world, "a.below.test.", RecordType::A)), addresses(&first));
    for name in ["denied.test.", "no.below.test.", "below.test.", "a_b.below.test.", "_dns.resolver.arpa.", "test."] {
        let answer = asked(&world, name, RecordType::A);
        assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
        let edns = answer.edns.unwrap();
        let Some(EdnsOption::Unknown(15, error)) = edns.option(EdnsCode::from(15)) else { panic!("{name}") };
        assert_eq!(error[..2], [0, 15], "{name}: blocked");
        assert!(error.len() > 10, "{name}: with a reason");
    }
    for kind in [RecordType::TXT, RecordType::MX, RecordType::HTTPS, RecordType::ANY, RecordType::SRV, RecordType::PTR]
    {
        let answer = asked(&world, "allowed.test.", kind);
        assert_eq!((answer.metadata.response_code, answer.answers.len()), (ResponseCode::NoError, 0), "{kind}");
        assert_eq!(asked(&world, "denied.test.", kind).metadata.response_code, ResponseCode::NXDomain, "{kind}");
    }
    assert_eq!(addresses(&asked(&world, "localhost.", RecordType::A)), [Ipv4Addr::LOCALHOST]);
    assert_eq!(world.resolver.take_asked(), [] as [&str; 0]);
    let events = world.events.all();
    assert!(events.iter().all(|event| event.event == EventKind::Dns));
    assert!(events.iter().any(|event| event.host == "denied.test" && event.code == DenyCode::DnsDenied));
    let summary = world.egress().summary();
    let denied = summary.denied.iter().find(|denied| denied.host == "denied.test").unwrap();
    assert_eq!(denied.allow_with.as_deref(), Some("--allow denied.test:443"));
}

#[test]
fn garbage_is_an_error_and_never_an_answer() {
    let world = World::of(input(&["allowed.test"]));
    let good = query("allowed.test.", RecordType::A).to_vec().unwrap();
    let code = |bytes: &[u8]| raw(&world, bytes).map(|answer| answer.metadata.response_code);
    let mut two = query("allowed.test.", RecordType::A);
    two.queries.push(Query::query(Name::from_ascii("denied.test.").unwrap(), RecordType::A));
    assert_eq!(code(&two.to_vec().unwrap()), Some(ResponseCode::FormErr));
    let none = Message::new(3, MessageType::Query, OpCode::Query);
    assert_eq!(code(&none.to_vec().unwrap()), Some(ResponseCode::FormErr));
    assert_eq!(code(&good[..20]), Some(ResponseCode::FormErr));
    assert_eq!(code(&[&good[..12], &[0xff; 40]].concat()), Some(ResponseCode::FormErr));
    let mut update = query("allowed.test.", RecordType::A);
    update.metadata.op_code = OpCode::Update;
    assert_eq!(code(&update.to_vec().unwrap()), Some(ResponseCode::NotImp));
    // An answer must not be answered: two servers would talk for ever.
    let mut answer = query("allowed.test.", RecordType::A);
    answer.metadata.message_type = MessageType::Response;
    assert_eq!(code(&answer.to_vec().unwrap()), None);
    assert_eq!(code(b""), None);
    assert_eq!(code(b"\x01"), None);
    assert_eq!(code(&good), Some(ResponseCode::NoError));
}

#[test]
fn a_reverse_look_up_is_in_the_record_and_in_no_summary() {
    let mut world = World::of(input(&["allowed.test"]));
    let six = format!("{}ip6.arpa.", "0.".repeat(32));
    let names = ["1.0.18.198.in-addr.arpa.", six.as_str(), "_dns.resolver.ARPA.", "ipv4only.arpa."];
    for name in names {
        for kind in [RecordType::PTR, RecordType::A] {
            let answer = asked(&world, name, kind);
            assert_eq!(answer.metadata.response_code, ResponseCode::NXDomain, "{name}");
            let edns = answer.edns.unwrap();
            let Some(EdnsOption::Unknown(15, error)) = edns.option(EdnsCode::from(15)) else { panic!("{name}") };
            assert!(!String::from_utf8_lossy(error).contains("--allow"), "{name}");
        }
    }
    for name in ["nas.home.arpa.", "arpa.test."] {
        asked(&world, name, RecordType::A);
    }
    let summary = world.egress().summary();
    let denied: Vec<&str> = summary.denied.iter().map(|denied| denied.host.as_str()).collect();
    assert_eq!((denied, summary.denied_count), (vec!["arpa.test", "nas.home.arpa"], 2));
    assert!(summary.denied.iter().all(|denied| denied.allow_with.is_some()));
    world.egress.take().unwrap().stop().unwrap();
    let events = world.events.all();
    for name in names {
        let recorded = |event: &&nexus_egress::Event| event.host.trim_end_matches('.') == name.trim_end_matches('.');
        assert_eq!(events.iter().filter(recorded).filter(|event| event.code != DenyCode::Ok).count(), 2, "{name}");
    }
}

/// Asks for a name many times on one connection; returns the codes of the answers.
fn asked_often(world: &World, name: &str, times: usize) -> Vec<ResponseCode> {
    let bytes = query(name, RecordType::A).to_vec().unwrap();
    let framed = [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat();
    let mut stream = connect(world.dns_tcp);
    let answer = |_| {
        stream.write_all(&framed).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        Message::from_vec(&answer).unwrap().metadata.response_code
    };
    (0..times).map(answer).collect()
}

#[test]
fn repeated_look_ups_of_an_allowed_name_share_lines() {
    let mut world = World::of(input(&["allowed.test", "*.below.test"]));
    let codes = asked_often(&world, "allowed.test.", 2000);
    assert!(codes.iter().all(|code| *code == ResponseCode::NoError));
    for number in 0..20 {
        asked_often(&world, &format!("{number}.below.test."), 1);
    }
    assert_eq!(asked_often(&world, "denied.test.", 20), [ResponseCode::NXDomain; 20]);
    world.egress.take().unwrap().stop().unwrap();
    let events = world.events.all();
    let of = |host: &str| events.iter().filter(|event| event.host == host).collect::<Vec<_>>();
    let counts: Vec<u64> = of("allowed.test").iter().map(|event| event.repeated.unwrap_or(1)).collect();
    assert_eq!((counts[..16].iter().sum::<u64>(), counts.iter().sum::<u64>()), (16, 2000), "{counts:?}");
    assert!(counts.len() < 30, "{counts:?}");
    for number in 0..20 {
        assert_eq!(of(&format!("{number}.below.test")).len(), 1, "the first look-up of each name has a line");
    }
    let mut replay = nexus_policy::net::Replay::default();
    for line in world.events.lines() {
        replay.line(&line).unwrap();
    }
}

#[test]
fn a_look_up_that_cannot_be_recorded_is_refused() {
    let world = World::of(input(&["allowed.test"]));
    assert_eq!(asked_often(&world, "allowed.test.", 1), [ResponseCode::NoError]);
    world.events.fail(true);
    assert_eq!(asked_often(&world, "allowed.test.", 40), [ResponseCode::NXDomain; 40]);
    assert_eq!(world.egress().summary().audit_lost, 40);
    world.events.fail(false);
    assert_eq!(asked_often(&world, "allowed.test.", 1), [ResponseCode::NoError]);
    assert_eq!(world.events.all().len(), 2);
}

#[test]
fn questions_over_tcp_get_the_same_answers() {
    let world = World::of(input(&["allowed.test"]));
    let mut stream = connect(world.dns_tcp);
    for (name, code) in [("allowed.test.", ResponseCode::NoError), ("denied.test.", ResponseCode::NXDomain)] {
        let bytes = query(name, RecordType::A).to_vec().unwrap();
        stream.write_all(&u16::try_from(bytes.len()).unwrap().to_be_bytes()).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(Message::from_vec(&answer).unwrap().metadata.response_code, code);
    }
}

#[test]
fn questions_count_as_requests() {
    let budget = Budget { requests: Some(3), ..Budget::default() };
    let world = World::of(PolicyInput { budget, ..input(&["allowed.test"]) });
    let bytes = query("allowed.test.", RecordType::A).to_vec().unwrap();
    let first = raw(&world, &bytes).unwrap();
    assert_eq!(first.metadata.response_code, ResponseCode::NoError);
    assert_eq!(raw(&world, &bytes).unwrap().metadata.response_code, ResponseCode::NoError);
    assert_eq!(raw(&world, &bytes).unwrap().metadata.response_code, ResponseCode::NXDomain);
}

/// Makes `nft` send connections to the synthetic range and to one literal to the transparent listener, as a sandbox
/// does.
fn redirect(world: &World) {
    let rules = format!(
        "add table ip t; add chain ip t out {{ type nat hook output priority -100; }}; \
         add rule ip t out ip daddr {{ 198.18.0.0/15, 11.22.33.44 }} tcp dport 1-65535 redirect to :{}",
        world.transparent.port()
    );
    let status = Command::new("nft").arg(rules).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_redirected_connection_is_decided_by_the_name_behind_its_address() {
    if outside_of_netns() {
        return;
    }
    server("11.22.33.55:7000", echo);
    server("11.22.33.44:7000", echo);
    let world = World::with(input(&["allowed.test:7000"]), |config| {
        config.destinations = std::sync::Arc::new(nexus_egress::Kernel);
    });
    world.resolver.set("allowed.test", &[Ipv4Addr::new(11, 22, 33, 55).into()]);
    redirect(&world);
    let synthetic = addresses(&asked(&world, "allowed.test.", RecordType::A))[0];
    let mut client = connect(SocketAddr::new(synthetic, 7000));
    client.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    client.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    let refused = |address: SocketAddr| match try_connect(address) {
        Err(_) => true,
        Ok(mut stream) => support::read_all(&mut stream).is_none(),
    };
    assert!(refused(SocketAddr::new(synthetic, 7001)), "another port");
    assert!(refused("11.22.33.44:7000".parse().unwrap()), "an address, though somebody listens there");
    assert!(refused("198.18.99.99:7000".parse().unwrap()), "a synthetic address of no name");
    let codes: Vec<DenyCode> =
        world.events.all().iter().filter(|event| event.event == EventKind::Deny).map(|event| event.code).collect();
    assert_eq!(codes, [DenyCode::PortNotAllowed, DenyCode::NotInAllowlist, DenyCode::InvalidDestination]);
    // A connection to the listener itself was going to the listener: a loopback address like any other.
    assert!(refused(world.transparent));
    assert_eq!(world.events.all().last().unwrap().code, DenyCode::PrivateDestination);
}

#[test]
fn without_the_kernels_word_a_redirected_connection_goes_nowhere() {
    let world = World::of(input(&["allowed.test"]));
    let refused = try_connect(world.transparent).map_or(true, |mut stream| support::read_all(&mut stream).is_none());
    assert!(refused);
    support::eventually("the denial", || world.events.has(EventKind::Deny));
    assert_eq!(world.events.all().last().unwrap().code, DenyCode::InternalError);
}
