//! The documents that count for an account: those of the operator, and under them the one that the account has stored.
//!
//! ```text
//!  PUT ─▶ candidate: read, level, parts that can be held, own tests, under the operator's ─ no ─▶ refused; the one before stays
//!                        └ yes ─▶ stored as the next generation
//!  create, claim, connection, explain ─▶ of: the stored generation under the operator's, built once and kept
//! ```

use nexus_api::mothership::MAX_POLICY_BYTES;
use nexus_model::digest::Digest;
use nexus_model::ids::AccountId;
use nexus_model::spec::DirectiveSpec;
use nexus_policy::document::{
    Admission, DirectiveRefusal, Effective, Level, LoadedPolicy, PolicySet, SetError, check_directive, lower_limits,
    not_held,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Accounts whose documents are kept ready. With more, all are built again.
const MAX_KNOWN: usize = 1_000;

/// A document that does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// It is too long.
    #[error("the document must have at most {MAX_POLICY_BYTES} bytes")]
    Length,
    /// It cannot be understood, or its own tests do not hold.
    #[error("{why}")]
    Document {
        /// Place and description of the mistake.
        why: String,
    },
    /// It is for another level.
    #[error("the level of the document must be account, not {level}")]
    Level {
        /// Level of the document.
        level: &'static str,
    },
    /// It has parts that are decided on a territory alone.
    #[error("a control plane cannot hold a directive to {}; write it into the documents of the territories", parts.join(", "))]
    NotHeld {
        /// The parts, each with its place.
        parts: Vec<String>,
    },
}

impl PolicyRefusal {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Length | Self::Document { .. } => "policy_document",
            Self::Level { .. } => "policy_level",
            Self::NotHeld { .. } => "policy_not_held",
        }
    }
}

/// A generation of the document of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Number of the changes.
    pub number: u64,
    /// Hash of the text; `None` where the document was removed.
    pub hash: Option<Digest>,
}

/// The operator's documents, and those of accounts under them as far as they were asked for.
pub struct Policies {
    operator: Arc<PolicySet>,
    known: Mutex<BTreeMap<AccountId, (Generation, Arc<PolicySet>)>>,
}

impl Policies {
    pub fn new(operator: PolicySet) -> Self {
        Self { operator: Arc::new(operator), known: Mutex::default() }
    }

    /// Returns the documents of the operator alone.
    pub fn operator(&self) -> Arc<PolicySet> {
        Arc::clone(&self.operator)
    }

    /// Reads a document that shall count for an account, and tests it under the operator's.
    pub fn candidate(&self, source: &str, text: &str) -> Result<LoadedPolicy, PolicyRefusal> {
        if text.len() > MAX_POLICY_BYTES {
            return Err(PolicyRefusal::Length);
        }
        let loaded = LoadedPolicy::read(source, text)
            .map_err(|error| PolicyRefusal::Document { why: format!("{source}:{}: {}", error.place, error.message) })?;
        if loaded.document.level != Level::Account {
            return Err(PolicyRefusal::Level { level: loaded.document.level.word() });
        }
        let parts = not_held(&loaded.document);
        if !parts.is_empty() {
            let parts = parts.into_iter().map(|(what, place)| format!("{what} ({source}:{place})")).collect();
            return Err(PolicyRefusal::NotHeld { parts });
        }
        self.under(loaded.clone())?;
        Ok(loaded)
    }

    /// Returns the documents of an account with a draft among them: in the place of the account's own, or of the operator's that has
    /// its level and id.
    pub fn with_draft(&self, now: &PolicySet, draft: LoadedPolicy) -> Result<PolicySet, SetError> {
        let is_draft = |known: &LoadedPolicy| {
            (known.document.level, &known.document.id) == (draft.document.level, &draft.document.id)
        };
        if draft.document.level == Level::Account && !self.operator.documents().iter().any(is_draft) {
            return self.operator.narrowed_by(vec![draft]);
        }
        let own = now.documents().iter().filter(|loaded| !self.operator.documents().contains(loaded));
        let own = own.cloned().collect();
        self.operator.with(vec![draft])?.narrowed_by(own)
    }

    fn under(&self, loaded: LoadedPolicy) -> Result<PolicySet, PolicyRefusal> {
        self.operator.narrowed_by(vec![loaded]).map_err(|error| PolicyRefusal::Document { why: error.to_string() })
    }

    /// Returns what counts for an account with this generation. `text` reads its document, where it is not known yet.
    pub fn of<E: From<PolicyRefusal>>(
        &self,
        account: AccountId,
        generation: &Generation,
        text: impl FnOnce() -> Result<String, E>,
    ) -> Result<Arc<PolicySet>, E> {
        let Some(hash) = generation.hash else { return Ok(self.operator()) };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, set)) = known.get(&account)
            && of == generation
        {
            return Ok(Arc::clone(set));
        }
        drop(known);
        let loaded = self.candidate(&source(generation.number), &text()?)?;
        if loaded.hash != hash {
            return Err(PolicyRefusal::Document {
                why: "the stored document is not the one that was tested".to_owned(),
            }
            .into());
        }
        let set = Arc::new(self.under(loaded)?);
        known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(account, (generation.clone(), Arc::clone(&set)));
        Ok(set)
    }
}

/// Returns the name of a generation, where a document has its path.
pub fn source(generation: u64) -> String {
    format!("account@{generation}")
}

/// A directive that is about to be handed out, under the documents of this moment.
#[derive(Debug, Clone, PartialEq)]
pub enum AtClaim {
    /// It goes out as it was stored.
    Same,
    /// It goes out with lower limits.
    Lowered(Box<DirectiveSpec>),
    /// It does not go out, for this reason.
    Denied(String),
}

/// Holds a directive against the documents again. `approvers` is the number of users who approved it, where it asked for that.
pub fn at_claim(policies: &Effective, spec: &DirectiveSpec, approvers: Option<u32>) -> AtClaim {
    let mut lowered = spec.clone();
    lower_limits(policies, &mut lowered);
    match (check_directive(policies, &lowered), approvers) {
        // The reason stands in the audit chain, which holds no part of a command.
        (Err(DirectiveRefusal::Command { .. }), _) => {
            return AtClaim::Denied("no approval lets its command through".to_owned());
        }
        (Err(refused), _) => return AtClaim::Denied(refused.to_string()),
        (Ok(Admission::NeedsApproval { reasons, .. }), None) => {
            let policy = reasons.first().map_or("a policy asks for it", String::as_str);
            let why = format!("it needs an approval now, and was created without a request for one: {policy}");
            return AtClaim::Denied(why);
        }
        (Ok(Admission::NeedsApproval { quorum, .. }), Some(count)) if count < quorum => {
            return AtClaim::Denied(format!("{quorum} users must approve it now, and {count} did"));
        }
        (Ok(Admission::Free | Admission::NeedsApproval { .. }), _) => {}
    }
    match approvers {
        _ if lowered == *spec => AtClaim::Same,
        None => AtClaim::Lowered(Box::new(lowered)),
        Some(_) => AtClaim::Denied("a policy lowers its limits now, and what was approved has none".to_owned()),
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
