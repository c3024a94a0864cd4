//! The enforcement proof: what a confined process tried just before the command started, and what it saw.

use serde::{Deserialize, Serialize};

/// One attempt and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofItem {
    /// What was tried, e.g. `write_outside`.
    pub check: String,
    /// The answers that the plan allows, e.g. `EROFS|EACCES`.
    pub expected: String,
    /// The answer.
    pub seen: String,
}

impl ProofItem {
    /// Whether the answer is one of those expected.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.expected.split('|').any(|allowed| allowed == self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_only_when_it_is_named() {
        let item = |seen: &str| ProofItem { check: "x".into(), expected: "EROFS|EACCES".into(), seen: seen.into() };
        assert!(item("EROFS").holds());
        assert!(item("EACCES").holds());
        assert!(!item("ok").holds());
        assert!(!item("").holds());
        assert!(!item("EROFS|EACCES").holds());
    }
}
