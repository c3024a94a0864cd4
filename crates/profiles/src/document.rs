//! Reads the text of one profile.

use nexus_model::Digest;
use nexus_policy::profile::{DocumentError, Loaded, parse};

/// Error of a document that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("{file}:{}: {}", error.place, error.message)]
pub struct BrokenDocument {
    /// Name by which the document was loaded.
    pub name: String,
    /// Path of the file, or a description of a built-in profile.
    pub file: String,
    /// Place and description of the mistake.
    pub error: DocumentError,
}

impl BrokenDocument {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "profile"
    }
}

/// Parses the text of a document.
pub fn read(name: &str, file: String, text: &str) -> Result<Loaded, BrokenDocument> {
    match parse(text) {
        Ok(document) => Ok(Loaded { name: name.to_owned(), source: file, hash: Digest::of(text.as_bytes()), document }),
        Err(error) => Err(BrokenDocument { name: name.to_owned(), file, error }),
    }
}
