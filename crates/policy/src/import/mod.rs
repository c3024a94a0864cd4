//! Rules of other programs as a policy document, with a report of what could not be carried over.
//!
//! ```text
//!  srt settings ──┐
//!  Claude rules ──┼─▶ Draft (each rule read as it will be read later) ─▶ document that holds its own tests
//!  Codex rules ───┘        └─ LeftOut: the rule, and why it is not there
//! ```
//! The stricter rule is taken and reported, or none, for one without an exact counterpart. Rules about commands decide
//! about questions to a person; they never were a boundary and are none here.

mod claude;
mod codex;
mod draft;
mod form;
mod paths;
mod srt;
mod starlark;

use crate::document::{LoadedPolicy, PolicySet};
use draft::Draft;

pub use form::{ImportError, LeftOut, Wanted};

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

/// A document made of other rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Text of the document.
    pub document: String,
    /// Everything that is not in it, or only more strictly.
    pub left_out: Vec<LeftOut>,
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
