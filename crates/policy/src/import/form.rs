//! The request of an import, and the rules that it leaves out.

use crate::document::Level;

/// The document that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Id of the document.
    pub id: &'a str,
    /// Level of the document.
    pub level: Level,
    /// Home directory, for `~`.
    pub home: Option<&'a str>,
}

/// A rule that the document does not have, or not exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The rule as written, shortened.
    pub what: String,
    /// Reason for which it is missing.
    pub why: String,
}

/// Reason why rules cannot be imported at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is not in this form.
    #[error("it cannot be read: {why}")]
    Unreadable {
        /// The fault in the text.
        why: String,
    },
    /// The document that came out does not hold. A fault of the import.
    #[error("the document that came out does not hold: {why}")]
    Unsound {
        /// Reason for which it does not hold.
        why: String,
    },
}
