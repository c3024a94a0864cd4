//! Destination of an attempt: a host and a port, read once and strictly.

use crate::net::rules::name::{Canonical, HostError, Name, canonical};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A canonical host: a name or an address, and never in doubt which.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A DNS name.
    Name(Name),
    /// An address, whatever its spelling was. An IPv4-mapped IPv6 address is the IPv4 address, as for the kernel.
    Address(IpAddr),
}

impl Host {
    /// Reads a host without brackets and port, in any spelling.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.contains(':') {
            return v6(text);
        }
        Ok(match canonical(text)? {
            Canonical::Name(name) => Self::Name(name),
            Canonical::V4(address) => Self::Address(IpAddr::V4(address)),
        })
    }

    /// Reads a host from bytes of the wire.
    pub fn parse_bytes(bytes: &[u8]) -> Result<Self, HostError> {
        Self::parse(std::str::from_utf8(bytes).map_err(|_| HostError::NotText)?)
    }

    /// Returns the host of an address.
    pub fn of_address(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }

    /// Returns the name, unless the host is an address.
    pub fn name(&self) -> Option<&Name> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

/// Reads an IPv6 address. `%` (a zone) and everything else that `Ipv6Addr` does not read is refused.
fn v6(text: &str) -> Result<Host, HostError> {
    let address: Ipv6Addr = text.parse().map_err(|_| HostError::Forbidden { character: ':' })?;
    Ok(Host::of_address(IpAddr::V6(address)))
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl Serialize for Host {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A TCP port, 1 to 65535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Port(u16);

impl Port {
    /// The lowest port, 1.
    pub const LOWEST: Self = Self(1);
    /// The port of HTTPS, 443.
    pub const HTTPS: Self = Self(443);
    /// The port of HTTP, 80.
    pub const HTTP: Self = Self(80);
    /// The port after HTTPS: between ports that are TLS by default and others there is an edge.
    pub(in crate::net) const AFTER_HTTPS: Self = Self(444);

    /// Returns a port, unless the number is 0.
    pub fn new(number: u16) -> Result<Self, TargetError> {
        if number == 0 { Err(TargetError::Port { text: "0".into() }) } else { Ok(Self(number)) }
    }

    /// Reads digits only: no sign, no space, no leading zero, which parsers read differently.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let wrong = || TargetError::Port { text: text.chars().take(40).collect() };
        if text.is_empty() || text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        text.parse().map(Self).map_err(|_| wrong())
    }

    /// Returns the port as a number.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u16::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reason why a text cannot be read as a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The port is not a number from 1 to 65535.
    #[error("{text:?} is not a port (1 to 65535, digits only)")]
    Port {
        /// The text of the port.
        text: String,
    },
    /// There is none, and none can be assumed.
    #[error("the port is missing: write HOST:PORT")]
    NoPort,
    /// Brackets around something other than an IPv6 address, or not closed.
    #[error("brackets belong around an IPv6 address and nothing else")]
    Brackets,
    /// An IPv6 address and a port without brackets, so that the end of the address cannot be seen.
    #[error("an IPv6 address with a port needs brackets: [ADDRESS]:PORT")]
    NeedsBrackets,
}

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// The host to reach.
    pub host: Host,
    /// The port to reach.
    pub port: Port,
}

impl Target {
    /// Reads `HOST:PORT` or `[IPV6]:PORT`; the port is required.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let (host, port) = split(text)?;
        Ok(Self { host, port: Port::parse(port.ok_or(TargetError::NoPort)?)? })
    }

    /// Reads a target, with a port to assume where none is written.
    pub fn parse_or(text: &str, port: Port) -> Result<Self, TargetError> {
        let (host, written) = split(text)?;
        Ok(Self { host, port: written.map_or(Ok(port), Port::parse)? })
    }

    /// Returns the target of a socket address: the kernel's for a redirected connection (`SO_ORIGINAL_DST`), or that of
    /// a SOCKS request with an address.
    pub fn of_socket(address: SocketAddr) -> Result<Self, TargetError> {
        Ok(Self { host: Host::of_address(address.ip()), port: Port::new(address.port())? })
    }
}

/// Splits a text into the host and the text of the port, if there is a colon for it.
pub(in crate::net) fn split(text: &str) -> Result<(Host, Option<&str>), TargetError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, after) = rest.split_once(']').ok_or(TargetError::Brackets)?;
        // `[example.test]` and `[127.0.0.1]` mean a name to some parsers and nothing to others (CVE-2022-29188).
        let host = v6(inner).map_err(|_| TargetError::Brackets)?;
        return match after.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if after.is_empty() => Ok((host, None)),
            None => Err(TargetError::Brackets),
        };
    }
    match text.split_once(':') {
        None => Ok((Host::parse(text)?, None)),
        Some((_, port)) if port.contains(':') => Err(TargetError::NeedsBrackets),
        Some((host, port)) => Ok((Host::parse(host)?, Some(port))),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host @ (Host::Address(IpAddr::V4(_)) | Host::Name(_)) => write!(f, "{host}:{}", self.port),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
