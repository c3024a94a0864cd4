//! The enforcement proof: what a confined process tried just before the command started, and what it saw.

use crate::bytes::ByteText;
use serde::{Deserialize, Serialize};

/// One attempt and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofItem {
    /// Name of the attempt, e.g. `write_outside`.
    pub check: String,
    /// The answers that the plan allows, e.g. `EROFS|EACCES`.
    pub expected: String,
    /// Answer that was seen.
    pub seen: String,
}

impl ProofItem {
    /// Returns whether the answer is one of those expected.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.expected.split('|').any(|allowed| allowed == self.seen)
    }
}

/// One attempt that a driver demands before a command starts, and the answers that it allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expectation {
    /// Name of the attempt, e.g. `write_root`. A guest that does not know the name answers that, and the proof fails.
    pub check: String,
    /// Path or number that the attempt is about; empty where the name says all.
    pub subject: ByteText,
    /// The allowed answers with `|` between, e.g. `EROFS|EACCES`.
    pub allowed: String,
}

impl Expectation {
    /// An attempt of which the name says all.
    #[must_use]
    pub fn new(check: &str, allowed: &str) -> Self {
        Self { check: check.to_owned(), subject: ByteText::default(), allowed: allowed.to_owned() }
    }

    /// The same attempt with this subject.
    #[must_use]
    pub fn about(self, subject: ByteText) -> Self {
        Self { subject, ..self }
    }
}

/// Reports whether a proof holds every expectation in its order, and each with an answer that is allowed. The list of the
/// driver counts, whatever the proof says that it expected. A driver that expects nothing has nothing proved.
#[must_use]
pub fn is_proved(expected: &[Expectation], proof: &[ProofItem]) -> bool {
    let matches = |(item, one): (&ProofItem, &Expectation)| {
        item.check == one.check && item.expected == one.allowed && item.holds()
    };
    !expected.is_empty() && proof.len() == expected.len() && proof.iter().zip(expected).all(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_proof_of_the_plans_own_checks_counts() {
        let expected = [
            Expectation::new("write_root", "EROFS|EACCES"),
            Expectation::new("uid_map", "1000 7 1"),
            Expectation::new("namespace_net", "own").about("42".into()),
        ];
        let prove = |one: &Expectation| ProofItem {
            check: one.check.clone(),
            expected: one.allowed.clone(),
            seen: one.allowed.split('|').next_back().unwrap().to_owned(),
        };
        let whole: Vec<ProofItem> = expected.iter().map(prove).collect();
        assert!(is_proved(&expected, &whole));
        for missing in 0..whole.len() {
            let mut part = whole.clone();
            part.remove(missing);
            assert!(!is_proved(&expected, &part), "{}", whole[missing].check);
            // A guest that says it expected what it saw.
            let mut lies = whole.clone();
            (lies[missing].expected, lies[missing].seen) = ("ok".to_owned(), "ok".to_owned());
            assert!(!is_proved(&expected, &lies), "{}", whole[missing].check);
        }
        assert!(!is_proved(&expected, &[]));
        assert!(!is_proved(&expected, &[whole.clone(), whole[..1].to_vec()].concat()));
        assert!(!is_proved(&[], &[]), "a driver that expects nothing");
    }

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
