//! A generation of documents: built as a whole, tested as a whole, and only then put in the place of the one before.
//!
//! ```text
//!  candidate documents ─▶ each one's cases hold, no id twice at one level ─▶ PolicySet (a new generation)
//!                            └─ else: SetError; the set before stays in force
//! ```

use super::effective::Effective;
use super::loaded::LoadedPolicy;
use super::self_test::{TestFailure, run_cases};
use nexus_model::Digest;

/// Documents that cannot become a generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A document's own case does not hold.
    #[error(transparent)]
    Test(#[from] TestFailure),
    /// Two documents have the same id at the same level.
    #[error("{one} and {other} are both the {level} policy {id}")]
    Twice {
        /// The level of both.
        level: &'static str,
        /// The id of both.
        id: String,
        /// Path of one document.
        one: String,
        /// Path of the other document.
        other: String,
    },
}

/// A generation of documents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicySet {
    documents: Vec<LoadedPolicy>,
    effective: Effective,
}

impl PolicySet {
    /// Tests the documents and combines them.
    pub fn build(mut documents: Vec<LoadedPolicy>) -> Result<Self, SetError> {
        documents.sort_by_key(LoadedPolicy::key);
        check(&documents)?;
        let effective = Effective::of(&documents);
        Ok(Self { documents, effective })
    }

    /// Tests `more` and puts it under this set, as a new generation that allows nothing that this one does not; `self` stays as it
    /// was. Each document of `more` counts beside those of this set, and replaces none of them.
    pub fn narrowed_by(&self, mut more: Vec<LoadedPolicy>) -> Result<Self, SetError> {
        more.sort_by_key(LoadedPolicy::key);
        let effective = self.effective.narrowed_by(&more);
        let mut documents: Vec<LoadedPolicy> = self.documents.iter().cloned().chain(more).collect();
        documents.sort_by_key(LoadedPolicy::key);
        check(&documents)?;
        Ok(Self { documents, effective })
    }

    /// Returns the set with `documents` in the place of those with the same level and id, as a new generation; `self`
    /// stays what it is.
    pub fn with(&self, documents: Vec<LoadedPolicy>) -> Result<Self, SetError> {
        let replaced = |old: &&LoadedPolicy| {
            let is =
                |new: &LoadedPolicy| (new.document.level, &new.document.id) == (old.document.level, &old.document.id);
            !documents.iter().any(is)
        };
        let kept: Vec<LoadedPolicy> = self.documents.iter().filter(replaced).cloned().collect();
        Self::build(kept.into_iter().chain(documents).collect())
    }

    /// Returns what the documents allow together.
    #[must_use]
    pub fn effective(&self) -> &Effective {
        &self.effective
    }

    /// Returns the documents, the farthest level first.
    #[must_use]
    pub fn documents(&self) -> &[LoadedPolicy] {
        &self.documents
    }

    /// Returns the hash of the generation: equal exactly when the same documents count at the same levels.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let lines: Vec<String> = self
            .documents
            .iter()
            .map(|loaded| format!("{} {} {}\n", loaded.document.level.word(), loaded.document.id, loaded.hash))
            .collect();
        Digest::of(lines.concat().as_bytes())
    }
}

/// No two documents have one name, and the cases of each one hold. The documents are sorted.
fn check(documents: &[LoadedPolicy]) -> Result<(), SetError> {
    for pair in documents.windows(2) {
        let [one, other] = pair else { continue };
        if (one.document.level, &one.document.id) == (other.document.level, &other.document.id) {
            return Err(SetError::Twice {
                level: one.document.level.word(),
                id: one.document.id.clone(),
                one: one.source.clone(),
                other: other.source.clone(),
            });
        }
    }
    for loaded in documents {
        if let Some(case) = run_cases(loaded).into_iter().find(|case| !case.holds) {
            return Err(TestFailure { file: loaded.source.clone(), case }.into());
        }
    }
    Ok(())
}
