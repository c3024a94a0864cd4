//! Decisions as data: a record keeps enough for another program to make each decision again.
//!
//! ```text
//!  {"event":"policy","policy":HASH,"in_force":{…}} ─▶ HASH must be of exactly that ─▶ kept
//!  {"event":…,"policy":HASH,"check":…,inputs,"code":…,"rule":…} ─▶ decided again ─▶ must come out the same
//! ```
//!
//! A policy holds rules and where they were written, and no credentials: not the upstream proxy's address, and of a
//! client's settings only hosts. A policy that was read from a record decides here and nowhere else.

use crate::net::cause::DenyCode;
use crate::net::decide::{check_addrs, check_dns, check_name, recheck};
use crate::net::permit::{Attempt, Denial, Grant, Ingress, MonotonicMs, Next, Permit, Route, RuleRef};
use crate::net::policy::behind::Behind;
use crate::net::policy::bound::MissingSni;
use crate::net::policy::budget::Budget;
use crate::net::policy::ceiling::Ceiling;
use crate::net::policy::methods::Methods;
use crate::net::policy::{Policy, PolicyError};
use crate::net::rules::bypass::Bypass;
use crate::net::rules::host_port::HostPort;
use crate::net::rules::rule::{AddressRule, AnyRule, Program};
use crate::net::rules::rule_set::RuleSet;
use crate::net::rules::target::{Host, Port, Target, TargetError};
use ipnet::{IpNet, Ipv6Net};
use nexus_model::capability::NetMode;
use nexus_model::{Digest, canonical};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

/// Maximum size of a policy that is kept, in bytes; of a longer one there is only the hash.
pub const MAX_BYTES: usize = 256 * 1024;

/// Every field that decides. A field that is missing here would not be a part of the hash; the compiler reports it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Policy", deny_unknown_fields)]
struct Form {
    mode: NetMode,
    allow: RuleSet,
    deny: RuleSet,
    allow_addresses: Vec<AddressRule>,
    deny_addresses: Vec<AddressRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host_ports: Vec<HostPort>,
    trusted_ranges: Vec<IpNet>,
    ceilings: Vec<Ceiling>,
    refuse_private: bool,
    missing_sni: MissingSni,
    methods: Methods,
    upstream_proxy: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    upstream_bypass: Vec<Bypass>,
    budget: Budget,
    expires: Option<MonotonicMs>,
    ask: bool,
    own_addresses: BTreeSet<IpAddr>,
    /// The servers behind denied names that one decision adds; a recorded policy has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    behind: Vec<Behind>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    nat64: BTreeSet<Ipv6Net>,
    own_listeners: Vec<SocketAddr>,
    generation: u64,
}

#[derive(Serialize, Deserialize)]
struct Formed(#[serde(with = "Form")] Policy);

impl Policy {
    /// Returns the policy as a document, and the hash of its canonical form; `None` if it cannot be written as JSON.
    pub fn recorded(&self) -> Option<(Digest, Value)> {
        let value = serde_json::to_value(Formed(self.clone())).ok()?;
        Some((Digest::of(&canonical::bytes(&value)), value))
    }
}

/// Question that a decision answered. Budgets, and the names that a client sends on a connection, are not decided from
/// a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The start of a connection.
    Connect,
    /// The continuation of an open connection.
    #[serde(rename = "keep")]
    Continue,
    /// The answer to a DNS question.
    Dns,
}

/// Fields of a line that concern the decision.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    policy: Option<Digest>,
    #[serde(default)]
    in_force: Option<Value>,
    #[serde(default)]
    check: Option<Check>,
    #[serde(default)]
    at: Option<MonotonicMs>,
    #[serde(default)]
    way: Option<Ingress>,
    #[serde(default)]
    program: Option<Program>,
    #[serde(default)]
    host: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    once: Option<AnyRule>,
    #[serde(default)]
    resolved: Option<Vec<IpAddr>>,
    #[serde(default)]
    own: Vec<IpAddr>,
    #[serde(default)]
    behind: Vec<Behind>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    #[serde(default)]
    code: Option<DenyCode>,
    #[serde(default)]
    rule: Option<RuleRef>,
}

/// Kind of a line that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    /// A policy that came into force.
    Policy,
    /// A decision that came out the same.
    Same,
    /// An event that cannot be decided from the record.
    Other,
}

/// Reason why a line does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The text is not a line of a record.
    #[error("the line cannot be read: {source}")]
    Unreadable {
        /// The reason, from the parser.
        #[from]
        source: serde_json::Error,
    },
    /// A policy under another policy's hash.
    #[error("the policy is not the one of the hash {said}")]
    Hash {
        /// The hash of the line.
        said: Digest,
    },
    /// A decision under a policy that was not in the record before it.
    #[error("the record does not hold the policy that decided")]
    NoPolicy,
    /// The line names no destination that can be read.
    #[error("the line names no destination: {why}")]
    Target {
        /// The reason, from the reader of targets.
        #[from]
        why: TargetError,
    },
    /// A rule of one answer that the policy refuses.
    #[error(transparent)]
    Once(#[from] PolicyError),
    /// The policy decides another code.
    #[error("the record says {recorded}, and the policy says {replayed}")]
    Differs {
        /// The code in the record.
        recorded: DenyCode,
        /// The code that the policy decides.
        replayed: DenyCode,
    },
    /// The policy decides the same code for another reason, or other addresses.
    #[error("the record names another rule or other addresses than the policy")]
    DecisionContext,
}

/// Reads a record from its beginning and decides all of it again.
#[derive(Debug, Default)]
pub struct Replay {
    policies: HashMap<Digest, Policy>,
}

/// Outcome of a decision: its rule and the addresses that are dialled, or the denial.
type Outcome = Result<(Option<RuleRef>, Vec<IpAddr>), Denial>;

impl Replay {
    /// Takes the next line.
    pub fn line(&mut self, text: &str) -> Result<Replayed, ReplayError> {
        let mut line: Line = serde_json::from_str(text)?;
        if line.event == "policy" {
            if let (Some(said), Some(value)) = (line.policy, line.in_force.take()) {
                if Digest::of(&canonical::bytes(&value)) != said {
                    return Err(ReplayError::Hash { said });
                }
                self.policies.insert(said, serde_json::from_value::<Formed>(value)?.0);
            }
            return Ok(Replayed::Policy);
        }
        let Some(check) = line.check else { return Ok(Replayed::Other) };
        let policy = line.policy.and_then(|digest| self.policies.get(&digest)).ok_or(ReplayError::NoPolicy)?;
        let outcome = line.decide(check, policy)?;
        let recorded = line.code.unwrap_or(DenyCode::InternalError);
        let replayed = outcome.as_ref().map_or_else(|denial| denial.code, |_| DenyCode::Ok);
        if recorded != replayed {
            return Err(ReplayError::Differs { recorded, replayed });
        }
        let same = match outcome {
            Ok((rule, addresses)) => rule == line.rule && addresses == line.addresses,
            Err(denial) => denial.rule.map(|rule| *rule) == line.rule,
        };
        if same { Ok(Replayed::Same) } else { Err(ReplayError::DecisionContext) }
    }
}

impl Line {
    fn decide(&self, check: Check, policy: &Policy) -> Result<Outcome, ReplayError> {
        let with_rule = match self.once.clone().map(|rule| policy.approve(rule)).transpose() {
            // A later policy that refuses the rule decides without it whether the connection may stay.
            Err(_) if check == Check::Continue => None,
            with_rule => with_rule?,
        };
        let policy = with_rule.as_ref().unwrap_or(policy).also_own(&self.own);
        let policy = &*policy.also_behind(&self.behind);
        let at = self.at.ok_or(ReplayError::DecisionContext)?;
        let host = Host::parse(&self.host).map_err(TargetError::from)?;
        if check == Check::Dns {
            let decided = check_dns(policy, &host, at);
            return Ok(decided.map(|()| (None, Vec::new())));
        }
        let target = Target { host, port: Port::new(self.port)? };
        let way = self.way.ok_or(ReplayError::DecisionContext)?;
        let attempt = Attempt { target, way, program: self.program.clone() };
        Ok(if check == Check::Continue { self.keep(policy, attempt, at) } else { self.connect(policy, &attempt, at) })
    }

    fn connect(&self, policy: &Policy, attempt: &Attempt, at: MonotonicMs) -> Outcome {
        let permit = match check_name(policy, attempt, at)? {
            Next::Dial(permit) => permit,
            Next::Resolve(query) => {
                check_addrs(policy, query, self.resolved.as_deref().unwrap_or(&self.addresses), at)?
            }
        };
        let addresses = match permit.route() {
            Route::Addrs(addrs) => addrs.iter().map(SocketAddr::ip).collect(),
            Route::ViaProxy(_) => Vec::new(),
        };
        Ok((permit.rule().cloned(), addresses))
    }

    /// Decides whether a connection may go on. Its rule and addresses are those of its beginning.
    fn keep(&self, policy: &Policy, attempt: Attempt, at: MonotonicMs) -> Outcome {
        let port = attempt.target.port.number();
        let addrs = self.addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let grant = Grant::default();
        let (generation, expires) = (policy.generation, policy.expires);
        recheck(policy, &Permit { attempt, addrs: Some(addrs), grant, generation, expires }, at)?;
        Ok((self.rule.clone(), self.addresses.clone()))
    }
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
