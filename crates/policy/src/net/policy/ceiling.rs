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

use crate::net::policy::bound::{MissingSni, PolicyBound};
use crate::net::rules::rule::Rule;
use crate::net::rules::rule_set::RuleSet;
use nexus_model::capability::NetMode;
use serde::{Deserialize, Serialize};

/// One ceiling in the form that decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::net) struct Ceiling {
    pub(in crate::net) mode: NetMode,
    pub(in crate::net) allow: RuleSet,
    /// Closes what the policy's own rules open of private destinations.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::net) refuse_given_private: bool,
    /// Refuses a connection that does not begin as this ceiling expects it, with TLS or HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::net) refuse_unnamed: bool,
    /// Takes the answer to a question as one more rule.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(in crate::net) asks: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Ceiling {
    /// Returns the ceiling that `by` adds, if it adds one.
    pub(in crate::net) fn of(by: &PolicyBound) -> Option<Self> {
        Some(Self {
            mode: by.mode?,
            allow: RuleSet::of(by.allow.iter().cloned()),
            refuse_given_private: by.refuse_given_private,
            refuse_unnamed: by.list_missing_sni == MissingSni::Refuse,
            asks: by.asks,
        })
    }

    /// Returns the ceiling with one more rule, if it takes answers.
    pub(in crate::net) fn with_answer(&self, rule: &Rule) -> Self {
        if !self.asks {
            return self.clone();
        }
        Self { allow: RuleSet::of(self.allow.rules().iter().chain([rule]).cloned()), ..self.clone() }
    }
}
