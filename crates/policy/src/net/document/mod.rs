//! The network part of a policy document or profile, as it is written in YAML or JSON.
//!
//! ```text
//!  text ─serde─▶ NetDocument ─input─▶ PolicyInput   (operator, user: gives)
//!   unknown keys, wrong types            │ its own tests run; one that fails refuses the document
//!   and double keys are errors      └─narrower─▶ PolicyBound (workspace, directive: only takes away)
//! ```

pub mod capability;
pub mod error;
pub mod item;
pub mod preset;

use crate::net::decide::check_name;
use crate::net::document::item::Item;
use crate::net::document::preset::Baseline;
use crate::net::permit::{Attempt, Ingress, MonotonicMs};
use crate::net::policy::bound::{MissingSni, PolicyBound};
use crate::net::policy::budget::Budget;
use crate::net::policy::methods::Methods;
use crate::net::policy::{Policy, PolicyInput};
use crate::net::rules::groups::Groups;
use crate::net::rules::rule::{AnyRule, Origin, Rule, parse_range};
use crate::net::rules::target::{Port, Target};
use error::{DocumentError, NO_PRIVATE};
use ipnet::IpNet;
use nexus_model::capability::{NetMode, NetPreset};
use serde::{Deserialize, Serialize};

/// Cases that a document brings along and that must hold when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DocumentTests {
    /// `HOST[:PORT]` that the rules must let through to a resolution.
    #[serde(rename = "match")]
    pub matches: Vec<String>,
    /// `HOST[:PORT]` that they must deny.
    pub not_match: Vec<String>,
}

/// A network policy as one document.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetDocument {
    /// The mode; without one the preset or the rules imply it.
    pub mode: Option<NetMode>,
    /// The preset that the document starts from.
    pub preset: Option<NetPreset>,
    /// Allowed names: `HOST[:PORTS]` or a map, see [`Item`].
    pub allow: Vec<Item>,
    /// Denied names, addresses and ranges.
    pub deny: Vec<Item>,
    /// Groups by name.
    pub groups: Vec<String>,
    /// Upper bounds for a whole directive.
    pub limits: Budget,
    /// Time that the policy holds, in seconds (1 to 86400).
    pub ttl_seconds: Option<u32>,
    /// Treatment of a connection without a TLS name.
    pub missing_sni: Option<MissingSni>,
    /// Allowed HTTP methods: `any` or `read_only`.
    pub methods: Methods,
    /// Private ranges into which allowed names may resolve; only in the operator's documents.
    pub trusted_ranges: Vec<String>,
    /// Cases that must hold.
    pub tests: DocumentTests,
}

impl NetDocument {
    /// Returns the policy input of the document after its own tests held. For [`Origin::Operator`] and
    /// [`Origin::User`].
    pub fn input(
        &self,
        file: &str,
        origin: Origin,
        groups: &Groups,
        now: MonotonicMs,
    ) -> Result<PolicyInput, DocumentError> {
        let parts = self.parts(file, origin, groups)?;
        let input = PolicyInput {
            mode: parts.mode,
            allow: parts.allow,
            deny: parts.deny,
            allow_addresses: parts.allow_addresses,
            deny_addresses: parts.deny_addresses,
            trusted_ranges: parts.trusted_ranges,
            missing_sni: parts.missing_sni,
            methods: self.methods,
            budget: self.limits,
            expires: self.ends(now),
            ..PolicyInput::default()
        };
        self.run_tests(&Policy::build(input.clone())?, now)?;
        Ok(input)
    }

    /// Returns the ceiling of the document after its own tests held over a policy that allows everything public. For
    /// [`Origin::Workspace`] and [`Origin::Directive`], who can only narrow.
    pub fn narrower(
        &self,
        file: &str,
        origin: Origin,
        groups: &Groups,
        now: MonotonicMs,
    ) -> Result<PolicyBound, DocumentError> {
        let parts = self.parts(file, origin, groups)?;
        if let Some(rule) = parts.allow_addresses.first() {
            return Err(DocumentError::NotHere { text: rule.source.text.clone(), why: NO_PRIVATE });
        }
        let implied = (!parts.allow.is_empty()).then_some(NetMode::Allowlist);
        let by = PolicyBound {
            mode: parts.mode.or(implied),
            allow: parts.allow,
            deny: parts.deny,
            deny_addresses: parts.deny_addresses,
            missing_sni: parts.missing_sni,
            methods: self.methods,
            budget: self.limits,
            expires: self.ends(now),
            ..PolicyBound::default()
        };
        let open = PolicyInput { mode: Some(NetMode::Unrestricted), ..PolicyInput::default() };
        self.run_tests(&Policy::build(open)?.narrow(&by), now)?;
        Ok(by)
    }

    fn ends(&self, now: MonotonicMs) -> Option<MonotonicMs> {
        self.ttl_seconds.map(|seconds| now.plus_ms(u64::from(seconds) * 1000))
    }

    fn parts(&self, file: &str, origin: Origin, groups: &Groups) -> Result<Parts, DocumentError> {
        if let Some(seconds) = self.ttl_seconds.filter(|seconds| !(1..=86_400).contains(seconds)) {
            return Err(DocumentError::Ttl { seconds });
        }
        let baseline = self.preset.map(preset::expand);
        let mut parts = Parts { mode: self.settled_mode(baseline)?, ..Parts::default() };
        parts.missing_sni = self.missing_sni.or(baseline.map(|baseline| baseline.missing_sni));
        for item in &self.allow {
            match item.allowance(file, origin)? {
                AnyRule::Name(rule) => {
                    self.strict_needs_approval(origin, &rule)?;
                    parts.allow.push(rule);
                }
                AnyRule::Address(rule) => parts.allow_addresses.push(rule),
            }
        }
        for item in &self.deny {
            match item.denial(file, origin)? {
                AnyRule::Name(rule) => parts.deny.push(rule),
                AnyRule::Address(rule) => parts.deny_addresses.push(rule),
            }
        }
        conflicts(&parts.allow, &parts.deny)?;
        for name in &self.groups {
            let rules = groups.get(name).ok_or_else(|| DocumentError::UnknownGroup {
                name: name.clone(),
                known: groups.keys().cloned().collect::<Vec<_>>().join(", "),
            })?;
            parts.allow.extend(rules.iter().cloned());
        }
        if baseline.is_some_and(|baseline| baseline.with_groups) {
            let public = groups.iter().filter(|(name, _)| name.as_str() != "code:ssh");
            parts.allow.extend(public.flat_map(|(_, rules)| rules.iter().cloned()));
        }
        for text in &self.trusted_ranges {
            if origin != Origin::Operator {
                return Err(DocumentError::NotHere { text: text.clone(), why: "only the operator trusts ranges" });
            }
            parts.trusted_ranges.push(parse_range(text)?);
        }
        Ok(parts)
    }

    fn settled_mode(&self, baseline: Option<Baseline>) -> Result<Option<NetMode>, DocumentError> {
        match (self.preset, baseline, self.mode) {
            (Some(preset), Some(Baseline { mode: means, .. }), Some(mode)) if means != mode => {
                Err(DocumentError::ModeAgainstPreset { preset, means, mode })
            }
            (_, Some(baseline), _) => Ok(Some(baseline.mode)),
            (_, None, mode) => Ok(mode),
        }
    }

    /// Refuses an allowance that needs an approval: under `strict` a document cannot approve its own rules; a flag, an
    /// answer or the operator can.
    fn strict_needs_approval(&self, origin: Origin, rule: &Rule) -> Result<(), DocumentError> {
        let by_itself = match origin {
            Origin::User | Origin::Workspace | Origin::Directive => true,
            Origin::Operator | Origin::Flag | Origin::Approval | Origin::Group => false,
        };
        if by_itself && self.preset == Some(NetPreset::Strict) && !preset::rule_reasons(self.preset, rule).is_empty() {
            let why =
                "under the preset strict a wildcard or a port other than 443 needs an approval; give it as --allow";
            return Err(DocumentError::NotHere { text: rule.source.text.clone(), why });
        }
        Ok(())
    }

    fn run_tests(&self, policy: &Policy, now: MonotonicMs) -> Result<(), DocumentError> {
        for (texts, should_match) in [(&self.tests.matches, true), (&self.tests.not_match, false)] {
            for text in texts {
                let target = Target::parse_or(text, Port::HTTPS)
                    .map_err(|why| DocumentError::TestText { text: text.clone(), why })?;
                let found = check_name(policy, &Attempt { target, way: Ingress::Connect, program: None }, now);
                let failed = match (&found, should_match) {
                    (Ok(_), true) | (Err(_), false) => continue,
                    (Err(denial), true) => ("be allowed", denial.explanation.clone()),
                    (Ok(_), false) => ("be denied", "the rules allow it".into()),
                };
                return Err(DocumentError::TestFailed { text: text.clone(), wanted: failed.0, found: failed.1 });
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Parts {
    mode: Option<NetMode>,
    allow: Vec<Rule>,
    deny: Vec<Rule>,
    allow_addresses: Vec<crate::net::rules::rule::AddressRule>,
    deny_addresses: Vec<crate::net::rules::rule::AddressRule>,
    trusted_ranges: Vec<IpNet>,
    missing_sni: Option<MissingSni>,
}

/// Refuses contradictions within one document; between documents deny simply wins. Within one, an allowance that can
/// never have an effect, or two for the same destination that differ in their demands, is a mistake that its author
/// should see.
fn conflicts(allow: &[Rule], deny: &[Rule]) -> Result<(), DocumentError> {
    let conflict = |one: &Rule, other: &Rule| {
        Err(DocumentError::Conflict { one: one.source.text.clone(), other: other.source.text.clone() })
    };
    for (place, rule) in allow.iter().enumerate() {
        let ineffective =
            |no: &&Rule| no.program.is_none() && no.pattern == rule.pattern && no.ports.contains_all(&rule.ports);
        if let Some(no) = deny.iter().find(ineffective) {
            return conflict(rule, no);
        }
        let differs = |other: &&Rule| {
            other.pattern == rule.pattern
                && other.program == rule.program
                && other.ports.overlaps(&rule.ports)
                && (other.private, other.tls) != (rule.private, rule.tls)
        };
        if let Some(other) = allow[place + 1..].iter().find(differs) {
            return conflict(rule, other);
        }
    }
    Ok(())
}
