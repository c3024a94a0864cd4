//! Parsers of hostile bytes: never a panic, never an answer that another reader would not give.
//!
//! `NEXUS_SOAK_CASES` sets the number of random cases (default 256).
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/by_rustls.rs"]
mod by_rustls;
#[path = "support/hello.rs"]
mod hello;

use by_rustls::by_rustls;
use hello::hello;
use nexus_egress::Limits;
use nexus_egress::pure::{
    Body, ChunkEvent, Chunks, Command, Greeting, Seen, Step, Synthetic, answer, begins_as_tls, greeting, parse_request,
    parse_response, question, read_hello, request, request_body, request_fields, response_body,
};
use nexus_model::network::{SYNTHETIC_V4, SYNTHETIC_V6};
use nexus_policy::net::{Host, Name, Target};
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

fn cases() -> Config {
    let cases = std::env::var("NEXUS_SOAK_CASES").map_or(256, |text| text.parse().unwrap());
    Config { cases, failure_persistence: None, ..Config::default() }
}

#[test]
fn a_hello_is_read_whole_and_only_whole() {
    for (fragment, name) in [(None, "a.test"), (Some(32), "a.test"), (Some(100), "long.name.of.a.host.test")] {
        let bytes = hello(name, fragment);
        for end in 0..bytes.len() {
            assert_eq!(read_hello(&bytes[..end]), Seen::More, "{end}");
        }
        assert_eq!(read_hello(&bytes), Seen::Sni(name.into()));
        let with_more = [bytes, b"more".to_vec()].concat();
        assert_eq!(read_hello(&with_more), Seen::Sni(name.into()));
    }
    assert_eq!(read_hello(&hello("127.0.0.1", None)), Seen::NoSni);
    assert_eq!(read_hello(&[22, 3, 1, 0, 4, 1, 0, 0xff, 0xff]), Seen::NotTls, "longer than any hello");
    let (whole, none) = (hello("a.test", Some(64)), [22, 3, 1, 0, 0]);
    let second = 5 + usize::from(u16::from_be_bytes([whole[3], whole[4]]));
    for behind_empty in [[&none[..], &none, &whole].concat(), [&whole[..second], &none, &whole[second..]].concat()] {
        assert_eq!(read_hello(&behind_empty), Seen::Sni(b"a.test".to_vec()));
        assert_eq!(read_hello(&behind_empty[..5]), Seen::More);
    }
    assert_eq!(read_hello(&none.repeat(5000)), Seen::NotTls, "more than a hello may have");
    // Records of one byte each: a way to make the proxy hold and read much for little.
    let tiny: Vec<u8> =
        std::iter::once(1).chain([0, 0x20, 0]).chain([7; 0x2000]).flat_map(|b| [22, 3, 1, 0, 1, b]).collect();
    assert_eq!(read_hello(&tiny[..tiny.len() - 6]), Seen::NotTls);
}

#[test]
fn two_names_in_one_hello_are_no_name() {
    let bytes = hello("a.test", None);
    // server_name (0), 11 bytes: list of 9, type 0, name of 6.
    let extension = [&[0, 0, 0, 11, 0, 9, 0, 0, 6][..], b"a.test"].concat();
    let at = bytes.windows(extension.len()).position(|window| window == extension).unwrap();
    let mut doubled = bytes.clone();
    doubled.splice(at..at, [&[0, 0, 0, 11, 0, 9, 0, 0, 6][..], b"b.test"].concat());
    let grow = |bytes: &mut [u8], at: usize, by: u16| {
        let value = u16::from_be_bytes([bytes[at], bytes[at + 1]]) + by;
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    };
    grow(&mut doubled, 3, 15);
    grow(&mut doubled, 7, 15);
    // The length of the extensions stands behind session id, suites and compression.
    let session = 9 + 2 + 32;
    let suites = session + 1 + usize::from(bytes[session]);
    let compression = suites + 2 + usize::from(u16::from_be_bytes([bytes[suites], bytes[suites + 1]]));
    grow(&mut doubled, compression + 1 + usize::from(bytes[compression]), 15);
    assert_eq!(read_hello(&doubled), Seen::NotTls);
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn where_rustls_reads_a_name_it_is_the_same_name(
        at in any::<proptest::sample::Index>(),
        value in any::<u8>(),
        cut in any::<proptest::sample::Index>(),
        fragment in prop_oneof![Just(None), (32_usize..200).prop_map(Some)],
    ) {
        let mut bytes = hello("some.name.test", fragment);
        let place = at.index(bytes.len());
        bytes[place] = value;
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            // What it takes for a hello, we may take for nothing, but never for another name.
            if let Some(name) = by_rustls(bytes) {
                match read_hello(bytes) {
                    Seen::Sni(seen) => {
                        // One that is not a host name here (rustls takes `_`) is refused.
                        if let Ok(host) = Host::parse_bytes(&seen) {
                            prop_assert_eq!(host.to_string(), name.to_ascii_lowercase());
                        }
                    }
                    Seen::NoSni => prop_assert_eq!(name, ""),
                    Seen::NotTls | Seen::More => {}
                }
            }
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        read_hello(&bytes);
        greeting(&bytes);
        request(&bytes);
        if let Ok(question) = question(&bytes) {
            answer(&question, Ok((Ipv4Addr::LOCALHOST, std::net::Ipv6Addr::LOCALHOST)));
        }
        let limits = Limits::default();
        if let Ok(Some(head)) = parse_request(&bytes, &limits) {
            request_body(&head).ok();
            request_fields(&head).ok();
        }
        if let Ok(Some(head)) = parse_response(&bytes, &limits) {
            response_body(&head, "GET").ok();
        }
        let mut chunks = Chunks::default();
        let mut rest = &bytes[..];
        while let Ok(ChunkEvent::Skip(count) | ChunkEvent::Data(count)) = chunks.next(rest) {
            prop_assert!(count > 0 && count <= rest.len());
            rest = &rest[count..];
        }
    }

    #[test]
    fn a_head_reads_the_same_however_it_arrives(
        method in "[A-Z]{1,7}",
        target in "[!-~]{1,40}",
        names in proptest::collection::vec("[A-Za-z0-9-]{1,12}", 0..6),
        values in proptest::collection::vec("[ -~\t]{0,20}", 6),
    ) {
        let lines: Vec<String> =
            names.iter().zip(&values).map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("{method} {target} HTTP/1.1\r\n{}\r\n", lines.concat());
        let limits = Limits::default();
        for end in 0..text.len() {
            prop_assert_eq!(parse_request(&text.as_bytes()[..end], &limits), Ok(None));
        }
        let more = format!("{text}GET / HTTP/1.1\r\n\r\n");
        let head = parse_request(more.as_bytes(), &limits).unwrap().unwrap();
        prop_assert_eq!((head.method, head.target, head.length), (&*method, &*target, text.len()));
        let read: Vec<_> = head.fields.iter().map(|field| (field.name, field.value)).collect();
        let written: Vec<_> =
            names.iter().zip(&values).map(|(name, value)| (name.as_bytes(), value.as_bytes().trim_ascii())).collect();
        prop_assert_eq!(read, written);
    }

    /// Checks `allowed(parse(x)) => dialled == parsed` for the bytes of SOCKS: the reader returns the written target.
    #[test]
    fn a_socks_request_is_read_as_it_was_written(name in "[a-z][a-z0-9]{0,20}\\.test", port in 1_u16.., split in 0_usize..20) {
        let mut bytes = vec![5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&port.to_be_bytes());
        let length = bytes.len();
        prop_assert_eq!(request(&bytes[..split.min(length - 1)]), Step::More);
        bytes.extend_from_slice(b"early data");
        let target = Target::parse(&format!("{name}:{port}")).unwrap();
        prop_assert_eq!(request(&bytes), Step::Done(Command::Connect(target), length));
    }

    #[test]
    fn chunks_decode_to_what_was_encoded_however_they_arrive(
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..40), 0..8),
        step in 1_usize..20,
    ) {
        let mut wire = Vec::new();
        for part in &parts {
            wire.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
            wire.extend_from_slice(part);
            wire.extend_from_slice(b"\r\n");
        }
        wire.extend_from_slice(b"0\r\nA-Trailer: x\r\n\r\nnext");
        let (mut chunks, mut content, mut at, mut seen) = (Chunks::default(), Vec::new(), 0, 0);
        loop {
            match chunks.next(&wire[at..seen]).unwrap() {
                ChunkEvent::More => seen = (seen + step).min(wire.len()),
                ChunkEvent::Skip(count) => at += count,
                ChunkEvent::Data(count) => {
                    content.extend_from_slice(&wire[at..at + count]);
                    at += count;
                }
                ChunkEvent::End(count) => {
                    at += count;
                    break;
                }
            }
        }
        prop_assert_eq!(content, parts.concat());
        prop_assert_eq!(&wire[at..], b"next");
    }

    /// Checks that an address never stands for another name than the one it was given for, in any order of questions,
    /// unless the whole range was used in between.
    #[test]
    fn a_synthetic_address_stands_for_one_name(asks in proptest::collection::vec(0_u32..300, 1..400)) {
        let mut map = Synthetic::default();
        let mut given: HashMap<Ipv4Addr, Name> = HashMap::new();
        for number in asks {
            let name = Name::parse(&format!("n{number}.test")).unwrap();
            let (v4, v6) = map.addresses(&name);
            prop_assert_eq!(given.entry(v4).or_insert_with(|| name.clone()), &name);
            prop_assert!(ipnet_contains(v4) && v6.segments()[..6] == SYNTHETIC_V6.0.segments()[..6]);
            prop_assert_eq!(format!("{:?}", map.name_of(IpAddr::V6(v6))), format!("Name(Name({name}))"));
            prop_assert_eq!(format!("{:?}", map.name_of(IpAddr::V4(v4))), format!("Name(Name({name}))"));
        }
    }
}

fn ipnet_contains(address: Ipv4Addr) -> bool {
    u32::from(address) >> 17 == u32::from(SYNTHETIC_V4.0) >> 17
}

#[test]
fn the_synthetic_map_is_bounded_and_forgets_the_longest_unused() {
    let mut map = Synthetic::default();
    let name = |number: usize| Name::parse(&format!("n{number}.test")).unwrap();
    let (first, _) = map.addresses(&name(0));
    let (second, _) = map.addresses(&name(1));
    for number in 2..20_000 {
        map.addresses(&name(number));
        // The first one stays in use.
        map.addresses(&name(0));
    }
    assert_eq!(map.len(), 16 * 1024);
    assert_eq!(map.addresses(&name(0)).0, first);
    assert_eq!(format!("{:?}", map.name_of(second.into())), "Forgotten");
    assert_eq!(format!("{:?}", map.name_of(Ipv4Addr::new(198, 20, 0, 1).into())), "NotOurs");
}

#[test]
fn a_greeting_without_an_open_method_is_known_as_such() {
    assert_eq!(greeting(&[5, 2, 2, 1]), Step::Done(Greeting::OnlyOther, 4));
    assert_eq!(greeting(&[5, 2, 2]), Step::More);
    assert_eq!(greeting(&[5, 2, 2, 0, 9]), Step::Done(Greeting::Open, 4));
    assert_eq!(greeting(&[5, 0]), Step::Done(Greeting::OnlyOther, 2));
    assert_eq!(greeting(&[4]), Step::Done(Greeting::Version4, 1));
    assert_eq!(greeting(&[0x16, 3]), Step::Done(Greeting::NotSocks, 2));
}

#[test]
fn a_body_of_a_response_depends_on_the_request() {
    let limits = Limits::default();
    let head = |text: &str| {
        let text = text.replace('|', "\r\n");
        let response = parse_response(text.as_bytes(), &limits).unwrap().unwrap();
        (response_body(&response, "GET"), response_body(&response, "HEAD"))
    };
    assert_eq!(head("HTTP/1.1 200 OK|Content-Length: 5||"), (Ok(Body::Length(5)), Ok(Body::None)));
    assert_eq!(head("HTTP/1.1 200||"), (Ok(Body::UntilClose), Ok(Body::None)));
    assert_eq!(head("HTTP/1.1 304 Not Modified|Content-Length: 5||"), (Ok(Body::None), Ok(Body::None)));
    assert_eq!(head("HTTP/1.1 200 OK|Transfer-Encoding: chunked||").0, Ok(Body::Chunked));
    assert!(head("HTTP/1.0 200 OK|Transfer-Encoding: chunked||").0.is_err());
}

#[test]
fn a_hello_that_cannot_be_read_is_recognized_by_its_beginning() {
    let long = [&[22, 3, 1, 0x40, 0, 1, 0, 0x44, 0][..], &[0; 100]].concat();
    for end in 1..long.len() {
        assert!(begins_as_tls(&long[..end]), "{end}");
    }
    for skipped in [&[22, 3, 1, 0, 0][..], &[21, 3, 3, 0, 2, 1], &[20, 3, 3, 0, 1, 1], &[22, 3, 3, 0, 4, 0]] {
        assert!(begins_as_tls(skipped), "{skipped:?}");
    }
    for other in [&b""[..], b"GET / HTTP/1.1", b"SSH-2.0", &[22, 2], &[19, 3], &[25, 3]] {
        assert!(!begins_as_tls(other), "{other:?}");
    }
}
