//! A document as it was read, with the name that records and receipts hold.

use super::form::{Level, PolicyDocument};
use super::read::parse;
use crate::profile::DocumentError;
use nexus_model::Digest;
use serde::Serialize;

/// A document that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedPolicy {
    /// The path of the document, or another name for people.
    pub source: String,
    /// Hash of its text as it was read.
    pub hash: Digest,
    /// Content of the document.
    pub document: PolicyDocument,
}

/// The name of a document, as records and receipts hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DocumentName {
    /// Level of the document.
    pub level: Level,
    /// Id of the document.
    pub id: String,
    /// The path of the document.
    pub source: String,
    /// Hash of its text.
    pub hash: Digest,
}

impl LoadedPolicy {
    /// Reads a text; its cases are run by `PolicySet::build`.
    pub fn read(source: &str, text: &str) -> Result<Self, DocumentError> {
        let document = parse(text, source)?;
        Ok(Self { source: source.to_owned(), hash: Digest::of(text.as_bytes()), document })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> DocumentName {
        let Self { source, hash, document } = self;
        DocumentName { level: document.level, id: document.id.clone(), source: source.clone(), hash: *hash }
    }

    pub(super) fn key(&self) -> (Level, String, String) {
        (self.document.level, self.document.id.clone(), self.hash.to_string())
    }
}
