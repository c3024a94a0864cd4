//! Errors of a document.

use crate::net::policy::PolicyError;
use crate::net::rules::rule::RuleError;
use crate::net::rules::target::TargetError;
use nexus_model::capability::{NetMode, NetPreset};

/// Reason why a document is refused. Each variant holds the item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// An item cannot be read as a rule.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The parts together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A preset and a mode that contradict each other.
    #[error("the preset {preset:?} means mode {means:?}, and the document says mode {mode:?}")]
    ModeAgainstPreset {
        /// The preset of the document.
        preset: NetPreset,
        /// The mode that the preset means.
        means: NetMode,
        /// The mode of the document.
        mode: NetMode,
    },
    /// No group has this name.
    #[error("there is no group {name:?}; known: {known}")]
    UnknownGroup {
        /// The name as written.
        name: String,
        /// Separated by commas.
        known: String,
    },
    /// Two rules of one document that cannot both be meant.
    #[error("the rules {one:?} and {other:?} contradict each other")]
    Conflict {
        /// One of the two rules.
        one: String,
        /// The other rule.
        other: String,
    },
    /// An item that only another origin may set.
    #[error("{text:?} cannot be said here: {why}")]
    NotHere {
        /// The item as written.
        text: String,
        /// The reason, with the origin that may set it.
        why: &'static str,
    },
    /// Out of range.
    #[error("ttl_seconds is {seconds}; it is 1 to 86400")]
    Ttl {
        /// The value as written.
        seconds: u32,
    },
    /// A test's own text.
    #[error("the test {text:?} is not a destination: {why}")]
    TestText {
        /// The text as written.
        text: String,
        /// The reason, from the reader of targets.
        #[source]
        why: TargetError,
    },
    /// A test that does not hold.
    #[error("the document's own test failed: {text:?} should {wanted}, but {found}")]
    TestFailed {
        /// The destination of the test.
        text: String,
        /// The wanted outcome.
        wanted: &'static str,
        /// The outcome under the rules.
        found: String,
    },
}

/// The reason for a refusal of an item that opens private destinations.
pub(in crate::net) const NO_PRIVATE: &str = "a workspace file or a directive never opens private destinations";
