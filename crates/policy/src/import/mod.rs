//! Rules of other programs as a policy document, with a report of what could not be carried over.
//!
//! ```text
//!  srt settings ──┐
//!  Claude rules ──┼─▶ Draft (each rule read as it will be read later) ─▶ document that holds its own tests
//!  Codex rules ───┘        └─ LeftOut: the rule, and why it is not there
//! ```
//! Where a rule has no exact counterpart, the stricter one is taken and reported, or none. Rules about commands decide
//! about questions to a person; they never were a boundary and are none here.

mod claude;
mod codex;
mod draft;
mod paths;
mod srt;
mod starlark;

use crate::document::{Level, LoadedPolicy, PolicySet};
use draft::Draft;

/// Form of the rules that are imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Settings of sandbox-runtime, in JSON.
    Srt,
    /// Permission rules of Claude Code, in JSON.
    Claude,
    /// Prefix rules of Codex, in Starlark.
    Codex,
}

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
    /// The reason.
    pub why: String,
}

/// A document made of other rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Text of the document.
    pub document: String,
    /// Everything that is not in it, or only more strictly.
    pub left_out: Vec<LeftOut>,
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
        /// The reason.
        why: String,
    },
}

/// Longest text that is read, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Makes a document of other rules.
pub fn import(format: Format, text: &str, wanted: Wanted<'_>) -> Result<Imported, ImportError> {
    if text.len() > MAX_BYTES {
        return Err(ImportError::Unreadable { why: format!("it has more than {MAX_BYTES} bytes") });
    }
    let mut draft = Draft::default();
    match format {
        Format::Srt => srt::read(text, wanted, &mut draft)?,
        Format::Claude => claude::read(text, wanted, &mut draft)?,
        Format::Codex => codex::read(text, &mut draft)?,
    }
    let document = draft.text(wanted);
    let unsound = |why: String| ImportError::Unsound { why };
    let loaded = LoadedPolicy::read("import", &document).map_err(|error| unsound(error.to_string()))?;
    PolicySet::build(vec![loaded]).map_err(|error| unsound(error.to_string()))?;
    Ok(Imported { document, left_out: draft.left_out })
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
