//! Ports of the host's loopback that a command may reach (`--allow-host-port`).
//!
//! ```text
//!  127.0.0.1:PORT, [::1]:PORT inside ─▶ its listener ─▶ Way::HostPort ───┐
//!  proxy: 127.0.0.1:PORT, [::1]:PORT, localhost:PORT, if PORT is open ────┴─▶ Permit: 127.0.0.1:PORT, then [::1]:PORT
//! ```
//!
//! Only a flag of the user opens a port, in every mode, also where there is no network: the listener of a port leads to
//! that port and to nothing else. Denials, the end of the policy and every ceiling hold.

use super::cause::Cause;
use super::ceiling::narrowed;
use super::decide::{never_open, permit, unexpired};
use super::methods::check_seen;
use super::pattern::Pattern;
use super::permit::{Attempt, Basis, Denial, Moment, Permit, RuleRef, Shows, Way};
use super::policy::Policy;
use super::rule::{Rule, Source};
use super::target::{Host, Port, Target, TargetError};
use nexus_model::capability::NetMode;
use nexus_model::network::INSIDE_PORTS;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses of the host that a port leads to, in the order in which they are tried.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

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
    Inside {
        /// The port that was given.
        port: Port,
    },
}

/// Reads the value of `--allow-host-port`: one port.
pub fn parse_host_port(text: &str) -> Result<Port, HostPortError> {
    let port = Port::parse(text)?;
    if INSIDE_PORTS.contains(&port.number()) { Err(HostPortError::Inside { port }) } else { Ok(port) }
}

/// Reports whether a host is a loopback address or the name `localhost`. Inside, both are the sandbox's own.
pub fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Address(address) => address.is_loopback(),
        Host::Name(_) => is_reached(host),
    }
}

/// Reports whether an open port is reached under this host.
fn is_reached(host: &Host) -> bool {
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

/// Reports whether `attempt` is about a port of the host's loopback: by its listener, or by a proxy and open.
pub(super) fn is_meant(policy: &Policy, attempt: &Attempt) -> bool {
    let Target { host, port } = &attempt.target;
    attempt.way == Way::HostPort || (is_reached(host) && opened(policy, *port).is_some())
}

/// Decides about such an attempt.
pub(super) fn decide(policy: &Policy, attempt: &Attempt, now: Moment) -> Result<Permit, Denial> {
    let Target { host, port } = &attempt.target;
    unexpired(policy, now)?;
    let Some(open) = opened(policy, *port).filter(|_| is_reached(host)) else {
        let why = format!("no --allow-host-port opens port {port} of this machine's loopback");
        return Err(Denial::new(Cause::LiteralNotAllowed, why).allow_with(format!("--allow-host-port {port}")));
    };
    let closed = policy.ceilings.iter().any(|ceiling| ceiling.mode != NetMode::Unrestricted);
    if closed || policy.refuse_private {
        return Err(narrowed(policy, &attempt.target.to_string()));
    }
    for address in LOOPBACK {
        never_open(policy, address, &attempt.target)?;
    }
    // A rule for one program denies every program here: a denial never falls short.
    let denies = |rule: &&Rule| {
        matches!(&rule.pattern, Pattern::Exact(name) if name.as_str() == "localhost") && rule.ports.contains(*port)
    };
    if let Some(rule) = policy.deny.rules().iter().find(denies) {
        let why = format!("{} is denied by the rule {}", attempt.target, rule.source);
        return Err(Denial::new(Cause::DeniedByRule, why).by(RuleRef::of(rule)));
    }
    check_seen(policy, attempt, Shows::Nothing)?;
    let rule = RuleRef { source: open.source.clone(), text: open.to_string() };
    let addrs = LOOPBACK.map(|address| SocketAddr::new(address, port.number())).to_vec();
    Ok(permit(policy, attempt, Some(addrs), Basis { rule: Some(rule), private: true, ..Basis::default() }))
}

fn opened(policy: &Policy, port: Port) -> Option<&HostPort> {
    policy.host_ports.iter().find(|open| open.port == port)
}

/// Returns the flag that would open a target whose addresses are not known yet.
pub(super) fn flag_for(policy: &Policy, target: &Target) -> Option<String> {
    match &target.host {
        Host::Name(_) if policy.serves_this_host() || !is_loopback(&target.host) => Some(format!("--allow {target}")),
        Host::Name(_) | Host::Address(_) => private_flag_for(policy, target),
    }
}

/// Returns the flag that would open a private target. For a program of the host the loopback is the host's own.
pub(super) fn private_flag_for(policy: &Policy, target: &Target) -> Option<String> {
    if policy.serves_this_host() { Some(format!("--allow-private {target}")) } else { private_flag(target) }
}

/// Returns the flag of `nexus run` that would open a private target. No flag opens another loopback address than
/// 127.0.0.1 and `::1`.
pub fn private_flag(target: &Target) -> Option<String> {
    match &target.host {
        host if is_reached(host) => Some(format!("--allow-host-port {}", target.port)),
        host if is_loopback(host) => None,
        Host::Name(_) | Host::Address(_) => Some(format!("--allow-private {target}")),
    }
}

#[cfg(test)]
#[path = "host_port_tests.rs"]
mod tests;
