//! Reads the text of one profile.

use nexus_model::Digest;
use nexus_policy::profile::{DocumentError, Loaded, parse};

/// A document cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{}: {}", error.place, error.message)]
pub struct BrokenDocument {
    /// The name by which it was loaded.
    pub name: String,
    /// The file, or words for a built-in profile.
    pub file: String,
    /// The place and the mistake.
    pub error: DocumentError,
}

impl BrokenDocument {
    /// The stable word for programs.
    pub fn code(&self) -> &'static str {
        "profile"
    }
}

/// Reads a document's text.
pub fn read(name: &str, file: String, text: &str) -> Result<Loaded, BrokenDocument> {
    match parse(text) {
        Ok(document) => Ok(Loaded { name: name.to_owned(), source: file, hash: Digest::of(text.as_bytes()), document }),
        Err(error) => Err(BrokenDocument { name: name.to_owned(), file, error }),
    }
}
