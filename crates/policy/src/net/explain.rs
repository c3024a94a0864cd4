//! `nexus net check`: the decision about one target, reported in full. It asks the same functions as a connection does.

use crate::net::cause::DenyCode;
use crate::net::decide::{check_addrs, check_name};
use crate::net::permit::{Attempt, Denial, Ingress, MonotonicMs, Next, Permit, Route, RuleRef};
use crate::net::policy::Policy;
use crate::net::policy::methods::Methods;
use crate::net::rules::ranges::{Class, classify};
use crate::net::rules::target::{Host, Target};
use serde::Serialize;
use std::net::IpAddr;

/// Outcome of a connection to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The connection is allowed.
    Allow,
    /// The connection is denied.
    Deny,
    /// A person would be asked.
    Ask,
}

/// One address with its class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExplainedAddress {
    /// The address that was looked at.
    pub address: IpAddr,
    /// `None` is the public internet.
    pub class: Option<Class>,
    /// The IPv4 addresses that it carries and leads to (NAT64, 6to4 and the like).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leads_to: Vec<IpAddr>,
}

/// The decision and its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The outcome of a connection.
    pub decision: Decision,
    /// `OK`, or why not.
    pub code: DenyCode,
    /// The rule that decided.
    pub rule: Option<RuleRef>,
    /// The addresses that it was decided with.
    pub addresses: Vec<ExplainedAddress>,
    /// The reason, in one sentence.
    pub explanation: String,
    /// The flag that would allow it.
    pub allow_with: Option<String>,
    /// The only way in by which it is allowed; `None` where the way does not matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_by: Option<Ingress>,
}

/// Decides about `target` as if it resolved to `addrs` (ignored for an address and behind an upstream proxy), for a
/// program that is not known.
pub fn explain(policy: &Policy, target: &Target, addrs: &[IpAddr], now: MonotonicMs) -> Explanation {
    explain_attempt(policy, &Attempt { target: target.clone(), way: Ingress::Connect, program: None }, addrs, now)
}

/// Decides about one attempt as [`explain`] does.
pub fn explain_attempt(policy: &Policy, attempt: &Attempt, addrs: &[IpAddr], now: MonotonicMs) -> Explanation {
    let target = &attempt.target;
    let outcome = match check_name(policy, attempt, now) {
        Ok(Next::Dial(permit)) => Ok(permit),
        Ok(Next::Resolve(query)) => check_addrs(policy, query, addrs, now),
        Err(denial) => Err(denial),
    };
    explain_outcome(policy, target, outcome, addrs)
}

/// Reports a decision about `target` that was made under `policy`, where `addrs` are the addresses of its name.
pub fn explain_outcome(
    policy: &Policy,
    target: &Target,
    outcome: Result<Permit, Denial>,
    addrs: &[IpAddr],
) -> Explanation {
    let seen = match (&outcome, &target.host) {
        (Ok(permit), Host::Name(_) | Host::Address(_)) => dialled(permit),
        (Err(_), Host::Address(address)) => vec![*address],
        (Err(_), Host::Name(_)) => addrs.to_vec(),
    };
    let with_class =
        |address| ExplainedAddress { address, class: classify(address), leads_to: carried_by(policy, address) };
    let addresses = seen.into_iter().map(with_class).collect();
    match outcome {
        Ok(permit) => Explanation {
            decision: Decision::Allow,
            code: DenyCode::Ok,
            rule: permit.rule().cloned(),
            addresses,
            explanation: allowed(policy, &permit),
            allow_with: None,
            only_by: None,
        },
        Err(Denial { cause: _, code, rule, explanation, allow_with }) => {
            let decision = if code == DenyCode::ApprovalRequired { Decision::Ask } else { Decision::Deny };
            Explanation {
                decision,
                code,
                rule: rule.map(|rule| *rule),
                addresses,
                explanation,
                allow_with,
                only_by: None,
            }
        }
    }
}

fn carried_by(policy: &Policy, address: IpAddr) -> Vec<IpAddr> {
    policy.embedded(address).into_iter().map(IpAddr::V4).filter(|inner| *inner != address.to_canonical()).collect()
}

fn dialled(permit: &Permit) -> Vec<IpAddr> {
    match permit.route() {
        Route::Addrs(addrs) => addrs.iter().map(std::net::SocketAddr::ip).collect(),
        Route::ViaProxy(_) => Vec::new(),
    }
}

fn allowed(policy: &Policy, permit: &Permit) -> String {
    let by = match permit.rule() {
        Some(rule) => format!("the rule {} allows {}", rule.source, permit.target()),
        None => format!("the mode {} allows {}", crate::net::policy::mode_name(policy.mode), permit.target()),
    };
    let by = match policy.methods() {
        Methods::Any => by,
        Methods::ReadOnly => format!("{by}, for GET, HEAD and OPTIONS"),
    };
    if permit.addresses_checked() {
        by
    } else {
        format!("{by}; the upstream proxy resolves it, so the addresses that it connects to are not checked")
    }
}
