//! Protocol that is spoken on a connection, as the matching rules determine it together.

use super::decide::{is_somebodys, named_attempt};
use super::permit::Permit;
use super::policy::Policy;
use super::rule::{AnyRule, Rule, Source, TCP, parse_allow};
use super::target::Port;

/// Protocol that the rules for one name expect on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// TLS for this name is required.
    Tls,
    /// The usual protocol of the port: HTTP on 80, anything on the others.
    Usual,
    /// Anything, also on ports 80 and 443 (`/tcp`).
    Any,
}

impl Speech {
    /// Returns the protocol of the matching `rules`, those for the nearest name first. A rule that demands TLS counts
    /// in any case; one that does without (`/tcp`) only among those for the nearest name, so that a wildcard does not
    /// open a host that another rule names.
    pub(super) fn of(rules: &[&Rule], port: Port) -> Self {
        if rules.iter().any(|rule| rule.tls == Some(true)) {
            return Self::Tls;
        }
        let goes_without = rules
            .first()
            .is_some_and(|nearest| rules.iter().any(|rule| rule.pattern == nearest.pattern && rule.tls == Some(false)));
        match (goes_without, port == Port::HTTPS) {
            (true, _) => Self::Any,
            (false, true) => Self::Tls,
            (false, false) => Self::Usual,
        }
    }
}

/// Returns the flag that does without TLS or HTTP for the destination of a permit; `None` where it would not help.
pub(super) fn tcp_flag(policy: &Policy, permit: &Permit) -> Option<String> {
    let attempt = permit.attempt();
    let name = attempt.target.host.name()?;
    let only = if is_somebodys(policy, name) { attempt.program.as_ref()?.suffix()? } else { String::new() };
    let value = format!("{}{TCP}{only}", attempt.target);
    let rule = parse_allow(&value, Source::flag(&value)).ok()?;
    let with = policy.approve(AnyRule::Name(rule)).ok()?;
    let basis = named_attempt(&with, name, attempt).ok()?;
    let helps = !basis.tls && !basis.http;
    // A rule that opens a private destination has the same host and port, and another flag.
    let flag = if permit.basis.private { "--allow-private" } else { "--allow" };
    helps.then(|| format!("{flag} {value}"))
}
