//! Presets: named starting points. They expand into a mode and groups; nothing else about them decides.

use crate::net::policy::PolicyInput;
use crate::net::policy::bound::MissingSni;
use crate::net::rules::pattern::Pattern;
use crate::net::rules::ports::Ports;
use crate::net::rules::rule::Rule;
use crate::net::rules::target::Port;
use nexus_model::capability::{NetMode, NetPreset};
use serde::Serialize;
use std::collections::BTreeSet;

/// Mode, groups and TLS setting that a preset stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Baseline {
    /// The mode of the network.
    pub mode: NetMode,
    /// True if the public groups of code hosts (but not those for ssh) and all package groups are in.
    pub with_groups: bool,
    /// Treatment of a missing TLS name.
    pub missing_sni: MissingSni,
}

/// Expands a preset. `custom` is as written: the allowlist that stands beside it.
pub fn expand(preset: NetPreset) -> Baseline {
    let (mode, with_groups, missing_sni) = match preset {
        NetPreset::Off => (NetMode::Unrestricted, false, MissingSni::Allow),
        NetPreset::Loose => (NetMode::Allowlist, true, MissingSni::Allow),
        NetPreset::Strict | NetPreset::Custom => (NetMode::Allowlist, false, MissingSni::Refuse),
        NetPreset::NoExternal => (NetMode::None, false, MissingSni::Refuse),
    };
    Baseline { mode, with_groups, missing_sni }
}

/// Reason why a person has to approve a request. Variant names are frozen by the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ApprovalReason {
    /// Everything public is requested.
    NetUnrestrictedRequested,
    /// A port beside 443 (and 80 with the preset `loose`).
    NetNonDefaultPortRequested,
    /// A wildcard is requested.
    NetWildcardDomainRequested,
    /// A private destination or an address.
    NetPrivateDestinationRequested,
    /// The preset `custom`.
    NetCustomPolicyRequested,
}

/// Returns the reasons why a request needs an approval. On a user's own command line the flag is the approval, so the
/// command line does not ask this.
pub fn approval_reasons(preset: Option<NetPreset>, input: &PolicyInput) -> BTreeSet<ApprovalReason> {
    let mut reasons = BTreeSet::new();
    if input.mode == Some(NetMode::Unrestricted) {
        reasons.insert(ApprovalReason::NetUnrestrictedRequested);
    }
    if preset == Some(NetPreset::Custom) {
        reasons.insert(ApprovalReason::NetCustomPolicyRequested);
    }
    if !input.allow_addresses.is_empty() || input.allow.iter().any(|rule| rule.private) {
        reasons.insert(ApprovalReason::NetPrivateDestinationRequested);
    }
    reasons.extend(input.allow.iter().flat_map(|rule| rule_reasons(preset, rule)));
    reasons
}

/// Returns the reasons of one rule for names.
pub(in crate::net) fn rule_reasons(preset: Option<NetPreset>, rule: &Rule) -> Vec<ApprovalReason> {
    let https = Ports::one(Port::HTTPS);
    let usual = if preset == Some(NetPreset::Loose) { https.union(&Ports::one(Port::HTTP)) } else { https };
    let mut reasons = Vec::new();
    if !usual.contains_all(&rule.ports) {
        reasons.push(ApprovalReason::NetNonDefaultPortRequested);
    }
    match rule.pattern {
        Pattern::Exact(_) => {}
        Pattern::Below(_) => reasons.push(ApprovalReason::NetWildcardDomainRequested),
    }
    reasons
}
