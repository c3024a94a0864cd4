//! Whether TLS is required on a connection, as the matching rules say together.

use super::decide::{is_somebodys, named_attempt};
use super::permit::Permit;
use super::policy::Policy;
use super::rule::{AnyRule, Rule, Source, TCP, parse_allow};
use super::target::Port;

/// Whether TLS is required on `port`. `rules` are the matching ones, those for the nearest name first. A rule that demands
/// TLS counts in any case; one that does without (`/tcp`) only among those for the nearest name, so that a wildcard does
/// not open a host that another rule names.
pub(super) fn requires_tls(rules: &[&Rule], port: Port) -> bool {
    let by_port = port == Port::HTTPS;
    if rules.iter().any(|rule| rule.tls == Some(true)) {
        return true;
    }
    let Some(nearest) = rules.first() else { return by_port };
    let goes_without = rules.iter().any(|rule| rule.pattern == nearest.pattern && rule.tls == Some(false));
    by_port && !goes_without
}

/// The flag that does without TLS for the destination of a permit; `None` where it would not help.
pub(super) fn tcp_flag(policy: &Policy, permit: &Permit) -> Option<String> {
    let attempt = permit.attempt();
    let name = attempt.target.host.name()?;
    let only = if is_somebodys(policy, name) { attempt.program.as_ref()?.suffix()? } else { String::new() };
    let value = format!("{}{TCP}{only}", attempt.target);
    let rule = parse_allow(&value, Source::flag(&value)).ok()?;
    let with = policy.approve(AnyRule::Name(rule)).ok()?;
    let helps = !named_attempt(&with, name, attempt).ok()?.tls;
    // A rule that opens a private destination has the same host and port, and another flag.
    let flag = if permit.basis.private { "--allow-private" } else { "--allow" };
    helps.then(|| format!("{flag} {value}"))
}
