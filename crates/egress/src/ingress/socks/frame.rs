//! Reads the two messages of a SOCKS5 client. Pure; the bytes are hostile.

use nexus_policy::net::{Host, HostError, Port, Target, TargetError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// State of the bytes that were read so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<T> {
    /// More bytes are needed.
    More,
    /// Whole message and its length.
    Done(T, usize),
}

/// First message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Greeting {
    /// SOCKS5 without authentication. The listener is the sandbox's own, so there is no other client to keep out.
    Open,
    /// SOCKS5 with only other kinds of authentication.
    OnlyOther,
    /// SOCKS4, which has no names, or only in a dialect.
    Version4,
    /// Bytes of another protocol.
    NotSocks,
}

/// Reads the greeting of a client.
pub fn greeting(bytes: &[u8]) -> Step<Greeting> {
    match bytes {
        [] | [5] => Step::More,
        [5, count, methods @ ..] => match methods.get(..usize::from(*count)) {
            Some(methods) if methods.contains(&0) => Step::Done(Greeting::Open, 2 + methods.len()),
            Some(methods) => Step::Done(Greeting::OnlyOther, 2 + methods.len()),
            None => Step::More,
        },
        [4, ..] => Step::Done(Greeting::Version4, bytes.len()),
        _ => Step::Done(Greeting::NotSocks, bytes.len()),
    }
}

/// Request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Request for a connection.
    Connect(Target),
    /// Request for a connection to an invalid target.
    Unreadable(TargetError),
    /// BIND, UDP ASSOCIATE or another command: reply 7.
    NotSupported,
    /// Request with an unknown kind of address: reply 8.
    AddressType,
    /// Malformed request: reply 1.
    Malformed,
}

/// Reads the request of a client.
pub fn request(bytes: &[u8]) -> Step<Command> {
    let [5, command, reserved, kind, rest @ ..] = bytes else {
        let prefix = bytes.len() < 4 && bytes.first().is_none_or(|version| *version == 5);
        return if prefix { Step::More } else { Step::Done(Command::Malformed, bytes.len()) };
    };
    if *reserved != 0 {
        return Step::Done(Command::Malformed, bytes.len());
    }
    let (host_start, host_length) = match (kind, rest) {
        (1, _) => (0, 4),
        (4, _) => (0, 16),
        (3, [length, ..]) => (1, usize::from(*length)),
        (3, []) => return Step::More,
        _ => return Step::Done(Command::AddressType, bytes.len()),
    };
    let end = host_start + host_length;
    let (Some(host), Some([high, low])) = (rest.get(host_start..end), rest.get(end..end + 2)) else {
        return Step::More;
    };
    let length = 4 + end + 2;
    if *command != 1 {
        return Step::Done(Command::NotSupported, length);
    }
    let port = u16::from_be_bytes([*high, *low]);
    let command = match read_host(*kind, host)
        .map_err(TargetError::from)
        .and_then(|host| Ok(Target { host, port: Port::new(port)? }))
    {
        Ok(target) => Command::Connect(target),
        Err(error) => Command::Unreadable(error),
    };
    Step::Done(command, length)
}

fn read_host(kind: u8, bytes: &[u8]) -> Result<Host, HostError> {
    if kind == 3 {
        return Host::parse_bytes(bytes);
    }
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Ok(Host::of_address(IpAddr::V4(Ipv4Addr::from(four))));
    }
    let sixteen = <[u8; 16]>::try_from(bytes).map_err(|_| HostError::NotAnAddress)?;
    Ok(Host::of_address(IpAddr::V6(Ipv6Addr::from(sixteen))))
}
