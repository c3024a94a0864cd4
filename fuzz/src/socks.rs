//! SOCKS5: what is read is what was written, whole or in parts.

use nexus_egress::pure::{Command, Greeting, Step, greeting, request};
use nexus_policy::net::{Host, Port, Target};
use std::net::IpAddr;

/// Both messages.
pub fn frames(data: &[u8]) {
    let (first, second) = (greeting(data), request(data));
    for cut in 0..data.len().min(300) {
        let part = &data[..cut];
        final_once_known(&greeting(part), &first, cut);
        final_once_known(&request(part), &second, cut);
    }
    if let Step::Done(kind, length) = first {
        assert!(length <= data.len());
        let open = data[0] == 5 && data[2..length].contains(&0);
        assert_eq!(kind == Greeting::Open, open, "{data:?}");
    }
    if let Step::Done(command, length) = second {
        assert!(length <= data.len());
        if let Command::Connect(target) = command {
            connect(&data[..length], &target);
        }
    }
}

/// More bytes never change an answer, and take none back.
fn final_once_known<T: PartialEq + std::fmt::Debug>(part: &Step<T>, whole: &Step<T>, cut: usize) {
    match (part, whole) {
        (Step::More, _) => {}
        (Step::Done(seen, _), Step::Done(all, _)) => assert_eq!(seen, all, "cut at {cut}"),
        (Step::Done(..), Step::More) => panic!("cut at {cut}: {part:?}, and whole: more"),
    }
}

fn connect(message: &[u8], target: &Target) {
    assert_eq!(message[..3], [5, 1, 0]);
    let (address, port) = message[4..].split_at(message.len() - 6);
    assert_eq!(Port::new(u16::from_be_bytes([port[0], port[1]])).as_ref(), Ok(&target.port));
    let host = match (message[3], address) {
        (1, address) => <[u8; 4]>::try_from(address).ok().map(IpAddr::from).map(Host::of_address),
        (4, address) => <[u8; 16]>::try_from(address).ok().map(IpAddr::from).map(Host::of_address),
        (3, [length, name @ ..]) if usize::from(*length) == name.len() => Host::parse_bytes(name).ok(),
        _ => None,
    };
    assert_eq!(host.as_ref(), Some(&target.host));
    assert_eq!(Target::parse(&target.to_string()).as_ref(), Ok(target), "its text is another target");

    // Written by hand from what was read, it is the same again.
    let text = target.host.to_string();
    let mut written = vec![5, 1, 0];
    match &target.host {
        Host::Address(IpAddr::V4(address)) => written.extend([1].into_iter().chain(address.octets())),
        Host::Address(IpAddr::V6(address)) => written.extend([4].into_iter().chain(address.octets())),
        Host::Name(_) => {
            written.extend([3, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
            written.extend_from_slice(text.as_bytes());
        }
    }
    written.extend_from_slice(&target.port.number().to_be_bytes());
    assert_eq!(request(&written), Step::Done(Command::Connect(target.clone()), written.len()));
}
