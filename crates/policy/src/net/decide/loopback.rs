//! Decisions about ports of the host's loopback (`--allow-host-port`).

use super::addresses::never_open;
use super::demands::narrowed;
use super::force::{permit, unexpired};
use super::methods::check_seen;
use crate::net::cause::Cause;
use crate::net::permit::{Attempt, Denial, Grant, Ingress, MonotonicMs, Permit, RuleRef, Shows};
use crate::net::policy::Policy;
use crate::net::rules::host_port::{HostPort, LOOPBACK, is_reached};
use crate::net::rules::pattern::Pattern;
use crate::net::rules::rule::Rule;
use crate::net::rules::target::{Port, Target};
use nexus_model::capability::NetMode;
use std::net::SocketAddr;

/// Reports whether `attempt` is about a port of the host's loopback: by its listener, or by a proxy and open.
pub(super) fn is_meant(policy: &Policy, attempt: &Attempt) -> bool {
    let Target { host, port } = &attempt.target;
    attempt.way == Ingress::HostPort || (is_reached(host) && opened(policy, *port).is_some())
}

/// Decides about such an attempt.
pub(super) fn decide(policy: &Policy, attempt: &Attempt, now: MonotonicMs) -> Result<Permit, Denial> {
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
    Ok(permit(policy, attempt, Some(addrs), Grant { rule: Some(rule), private: true, ..Grant::default() }))
}

fn opened(policy: &Policy, port: Port) -> Option<&HostPort> {
    policy.host_ports.iter().find(|open| open.port == port)
}

#[cfg(test)]
#[path = "loopback_tests.rs"]
mod tests;
