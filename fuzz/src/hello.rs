//! ClientHello: never another name than TLS itself reads, and the same however it arrives.

use nexus_egress::pure::{Seen, ServerAnswer, read_answer, read_hello, read_measured};
use nexus_policy::net::Host;

#[path = "by_rustls.rs"]
mod by_rustls;

use by_rustls::by_rustls;

/// The first bytes of a connection.
pub fn hello(data: &[u8]) {
    let whole = read_hello(data);
    for cut in (0..data.len()).step_by(1 + data.len() / 100) {
        match read_hello(&data[..cut]) {
            Seen::More => {}
            seen => assert_eq!(seen, whole, "cut at {cut}"),
        }
    }
    answer(data);
    if whole == Seen::More {
        return;
    }
    let (_, length) = read_measured(data);
    if length > 0 {
        assert_eq!(read_measured(&data[..length]), (whole.clone(), length), "its own bytes are another hello");
        assert_eq!(read_hello(&data[..length - 1]), Seen::More, "it ends before its end");
    }
    assert_eq!(read_hello(&[data, b"\x16\x03\x01\0\x05hello"].concat()), whole, "what follows changes it");
    if whole == Seen::NotTls {
        return;
    }
    if let Some(message) = message(data) {
        let length = u16::try_from(message.len()).unwrap_or_default().to_be_bytes();
        let one = [&[22, 3, 1], &length[..], &message].concat();
        assert_eq!(read_hello(&one), whole, "in one record it is another hello");
        let expected: &[&[u8]] = match &whole {
            Seen::Sni(name) => &[name],
            _ => &[],
        };
        assert_eq!(names(&message).as_deref(), Some(expected), "its extensions name others");
    }
    match (by_rustls(data), whole) {
        // It takes characters for a name that no host has, and an address for no name; both are refused later.
        (Some(name), Seen::Sni(seen)) => {
            if let Ok(Host::Name(host)) = Host::parse_bytes(&seen) {
                assert_eq!(host.to_string(), name.trim_end_matches('.').to_ascii_lowercase());
            }
        }
        (Some(name), Seen::NoSni) => assert_eq!(name, "", "a name was not seen"),
        (_, _) => {}
    }
}

/// The same bytes as a server's answer: no beginning of them says something else than all of them.
fn answer(data: &[u8]) {
    let whole = read_answer(data);
    for cut in (0..data.len()).step_by(1 + data.len() / 100) {
        let seen = read_answer(&data[..cut]);
        assert!(seen == ServerAnswer::More || seen == whole, "cut at {cut}: {seen:?}, and all of it {whole:?}");
    }
}

/// The handshake message in its records, if it fits into one.
fn message(mut data: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    loop {
        if let [_, a, b, c, ..] = message[..] {
            let length = 4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
            if message.len() >= length {
                message.truncate(length);
                return (length <= 1 << 14).then_some(message);
            }
        }
        let length = usize::from(u16::from_be_bytes([*data.get(3)?, *data.get(4)?]));
        message.extend_from_slice(data.get(5..5 + length)?);
        data = data.get(5 + length..)?;
    }
}

/// Every server name of the message, read by hand from fixed places (RFC 8446, 4.1.2; RFC 6066, 3).
fn names(message: &[u8]) -> Option<Vec<&[u8]>> {
    let number = |at: usize| Some(usize::from(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?])));
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(*message.get(at)?);
    at += 2 + number(at)?;
    at += 1 + usize::from(*message.get(at)?);
    let mut names = Vec::new();
    if at == message.len() {
        return Some(names);
    }
    at += 2;
    while at < message.len() {
        let end = at + 4 + number(at + 2)?;
        if number(at)? == 0 {
            names.push(message.get(at + 4 + 5..end)?);
        }
        at = end;
    }
    Some(names)
}
