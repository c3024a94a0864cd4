//! Ceilings: narrower lists on top of a policy. A connection needs the policy and each ceiling.
//!
//! ```text
//!  policy of the user ─ allows? ─┐
//!  ceiling of nexus.yaml ────────┼─▶ all of them ─▶ allowed
//!  ceiling of a directive ───────┘   what one of them demands (TLS, HTTP) is demanded; both of one port: denied
//! ```
//!
//! A list of a ceiling does not take the place of the policy's own rules: those also say what is denied, and where TLS
//! is required.

use super::cause::Cause;
use super::decide::allowing;
use super::methods::plain_http;
use super::name::Name;
use super::permit::Denial;
use super::policy::{MissingSni, Narrower, Policy};
use super::rule::Rule;
use super::rule_set::RuleSet;
use super::speech::Speech;
use super::target::Port;
use super::who::Who;
use nexus_model::capability::NetMode;
use serde::{Deserialize, Serialize};

/// One ceiling in the form that decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ceiling {
    pub(super) mode: NetMode,
    pub(super) allow: RuleSet,
    /// Closes what the policy's own rules open of private destinations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) refuse_given_private: bool,
    /// Refuses a connection that does not begin as this ceiling expects it, with TLS or HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) refuse_unnamed: bool,
    /// Takes the answer to a question as one more rule.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) asks: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Demands of a policy's ceilings on a connection that none of them closes.
#[derive(Debug, Default)]
pub(super) struct Demands {
    pub(super) tls: bool,
    pub(super) http: bool,
    pub(super) named: bool,
    /// The question for a person, where a list that may grow has no rule for it.
    pub(super) question: Option<Denial>,
}

impl Ceiling {
    /// Returns the ceiling that `by` adds, if it adds one.
    pub(super) fn of(by: &Narrower) -> Option<Self> {
        Some(Self {
            mode: by.mode?,
            allow: RuleSet::of(by.allow.iter().cloned()),
            refuse_given_private: by.refuse_given_private,
            refuse_unnamed: by.list_missing_sni == MissingSni::Refuse,
            asks: by.asks,
        })
    }

    /// Returns the ceiling with one more rule, if it takes answers.
    pub(super) fn with_answer(&self, rule: &Rule) -> Self {
        if !self.asks {
            return self.clone();
        }
        Self { allow: RuleSet::of(self.allow.rules().iter().chain([rule]).cloned()), ..self.clone() }
    }
}

impl Policy {
    /// Returns the mode that holds: the narrowest of the policy and its ceilings.
    pub fn mode(&self) -> NetMode {
        let rank = |mode: &NetMode| match mode {
            NetMode::None => 0,
            NetMode::Allowlist => 1,
            NetMode::Unrestricted => 2,
        };
        self.ceilings.iter().map(|ceiling| ceiling.mode).chain([self.mode]).min_by_key(rank).unwrap_or_default()
    }

    /// Reports whether the rules for private destinations hold: no ceiling closes them.
    pub(super) fn opens_private(&self) -> bool {
        !self.refuse_private && !self.ceilings.iter().any(|ceiling| ceiling.refuse_given_private)
    }
}

/// Decides about a name by the ceilings alone.
pub(super) fn demands(policy: &Policy, name: &Name, port: Port, who: Who<'_>) -> Result<Demands, Denial> {
    let mut all = Demands::default();
    for ceiling in &policy.ceilings {
        match ceiling.mode {
            NetMode::Unrestricted => {}
            NetMode::None => return Err(closed(&format!("{name}:{port}"), ceiling)),
            NetMode::Allowlist => {
                let rules = allowing(ceiling.allow.matching(name), port, who);
                if rules.is_empty() {
                    let denial = closed(&format!("{name}:{port}"), ceiling);
                    if !(ceiling.asks && policy.ask && policy.mode == NetMode::Allowlist) {
                        return Err(denial);
                    }
                    let explanation = format!("{}; somebody can be asked", denial.explanation);
                    let cause = Cause::MayAsk;
                    all.question = Some(Denial { cause, code: cause.code(), explanation, ..denial });
                    continue;
                }
                let speech = Speech::of(&rules, port);
                let http = plain_http(port, speech);
                all.tls |= speech == Speech::Tls;
                all.http |= http;
                all.named |= ceiling.refuse_unnamed && (http || speech == Speech::Tls);
            }
        }
    }
    Ok(all)
}

/// Returns the denial of what the lists of the ceilings do not have.
pub(super) fn narrowed(policy: &Policy, shown: &str) -> Denial {
    let ceiling = policy.ceilings.iter().find(|ceiling| ceiling.mode != NetMode::Unrestricted);
    ceiling.map_or_else(
        || Denial::new(Cause::Narrowed, format!("{shown} is closed by a narrower policy on top")),
        |ceiling| closed(shown, ceiling),
    )
}

/// Returns the denial of a port on which one list demands TLS and another one HTTP whose requests are read: whichever
/// was dropped, one of the two would open what it closes.
pub(super) fn contradiction(policy: &Policy, shown: &str) -> Denial {
    let file =
        policy.ceilings.iter().flat_map(|ceiling| ceiling.allow.rules()).find_map(|rule| rule.source.file.as_deref());
    let with =
        file.map_or_else(|| "a narrower policy on top".to_owned(), |file| format!("the narrower list of {file}"));
    let why = format!("{shown} is for TLS or for plain HTTP, and the rules and {with} disagree which of them");
    Denial::new(Cause::Narrowed, why)
}

fn closed(shown: &str, ceiling: &Ceiling) -> Denial {
    let file = ceiling.allow.rules().iter().find_map(|rule| rule.source.file.as_deref());
    Denial::new(
        Cause::Narrowed,
        match file {
            Some(file) => format!("{shown} is not in the narrower list of {file}"),
            None => format!("{shown} is not in a narrower policy on top"),
        },
    )
}

#[cfg(test)]
#[path = "ceiling_tests.rs"]
mod tests;
