//! Ports of the host's loopback that a command may reach (`--allow-host-port`).
//!
//! ```text
//!  127.0.0.1:PORT, [::1]:PORT inside ─▶ its listener ─▶ Way::HostPort ───┐
//!  proxy: 127.0.0.1:PORT, [::1]:PORT, localhost:PORT, if PORT is open ────┴─▶ Permit: 127.0.0.1:PORT, then [::1]:PORT
//! ```
//!
//! Only a flag of the user opens a port, in every mode, also where there is no network: the listener of a port leads to
//! that port and to nothing else. Denials, the end of the policy and every ceiling hold.

use crate::net::rules::rule::Source;
use crate::net::rules::target::{Host, Port, Target, TargetError};
use nexus_model::network::{INSIDE_ADDRESS, INSIDE_PORTS};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of the host that a port leads to, in the order in which they are tried.
pub(in crate::net) const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// One open port of the host's loopback.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The port, the same inside and on the host.
    pub port: Port,
    /// The flag that opened it.
    pub source: Source,
}

/// Reason why `--allow-host-port` does not take a text as a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPortError {
    /// The text cannot be read as a port.
    #[error("write one PORT of this machine's loopback: {0}")]
    Port(#[from] TargetError),
    /// The egress listens there.
    #[error("Nexus itself listens on port {port} inside. Let the service of this machine listen on another port")]
    SandboxPort {
        /// The port that was given.
        port: Port,
    },
}

/// Reads the value of `--allow-host-port`: one port.
pub fn parse_host_port(text: &str) -> Result<Port, HostPortError> {
    let port = Port::parse(text)?;
    if INSIDE_PORTS.contains(&port.number()) { Err(HostPortError::SandboxPort { port }) } else { Ok(port) }
}

/// Reports whether a host is a loopback address or the name `localhost`. Inside, both are the sandbox's own.
pub fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Address(address) => address.is_loopback(),
        Host::Name(_) => is_reached(host),
    }
}

/// Reports whether an open port is reached under this host.
pub(in crate::net) fn is_reached(host: &Host) -> bool {
    match host {
        Host::Address(address) => LOOPBACK.contains(address),
        Host::Name(name) => name.as_str() == "localhost",
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allow-host-port {}", self.port)
    }
}

/// Returns the flag of `nexus run` that would open a private target. No flag opens another loopback address than
/// 127.0.0.1 and `::1`, a port there on which the egress itself listens, or the address of the sandbox's own device.
pub fn private_flag(target: &Target) -> Option<String> {
    match &target.host {
        host if is_reached(host) && INSIDE_PORTS.contains(&target.port.number()) => None,
        host if is_reached(host) => Some(format!("--allow-host-port {}", target.port)),
        host if is_loopback(host) => None,
        Host::Address(address) if *address == INSIDE_ADDRESS => None,
        Host::Name(_) | Host::Address(_) => Some(format!("--allow-private {target}")),
    }
}
