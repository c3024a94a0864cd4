//! Names that the upstream proxy looks up: what this host knows of them is decided first.

use crate::net::cause::Cause;
use crate::net::decide::addresses::{no_loopback, resolved_address};
use crate::net::decide::names::offered;
use crate::net::permit::{Denial, NameQuery, Permit};
use crate::net::policy::Policy;
use crate::net::rules::pattern::Pattern;
use crate::net::rules::target::{Host, Target};
use std::net::IpAddr;

/// Returns the question to this host's resolver about the name of `permit`, which goes to the upstream proxy; `None`
/// for an address.
pub fn first_asked(policy: &Policy, permit: &Permit) -> Option<NameQuery> {
    let attempt = permit.attempt().clone();
    let Host::Name(name) = &attempt.target.host else { return None };
    let name = name.clone();
    let port = attempt.target.port;
    let exact =
        policy.allow.matching(&name).any(|rule| rule.ports.contains(port) && matches!(rule.pattern, Pattern::Exact(_)));
    Some(NameQuery { attempt, name, exact })
}

/// Decides about the addresses that this host's resolver gives for a name that goes to the upstream proxy. A name
/// without addresses is not refused: behind such a proxy a host often knows no name of the internet. A proxy on this
/// host is the exception, since it reaches this host's loopback: it gets such a name only by a rule.
pub fn check_proxied(policy: &Policy, permit: &Permit, addrs: &[IpAddr], proxy_is_here: bool) -> Result<(), Denial> {
    let (attempt, target) = (permit.attempt(), permit.target());
    let Host::Name(name) = &target.host else { return Ok(()) };
    no_loopback(policy, name, target)?;
    if addrs.is_empty() && proxy_is_here && permit.rule().is_none() {
        let why = format!(
            "the name {name} has no address here, and the upstream proxy on this host gets such a name only from an allowlist"
        );
        return Err(Denial::new(Cause::NotResolved, why));
    }
    // In canonical order, so that the order of an answer does not choose the reason that is given.
    let mut ordered = addrs.to_vec();
    ordered.sort_unstable();
    let checked =
        ordered.into_iter().try_for_each(|address| resolved_address(policy, address, target, permit.grant.private));
    checked.map_err(|denial| offered(policy, denial, attempt))
}

/// Returns the denial for a target that is the upstream proxy itself, through which a program could reach any
/// destination.
pub fn the_proxy_itself(target: &Target) -> Denial {
    Denial::new(Cause::OwnListener, format!("{target} is the upstream proxy itself, which would open anything"))
}

#[cfg(test)]
#[path = "proxied_tests.rs"]
mod tests;
