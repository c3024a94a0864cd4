//! The record of a facility, in a versioned form.

use crate::kind::Kind;
use serde::{Deserialize, Serialize};

/// Version of the form that this program writes.
pub const VERSION: u32 = 1;

/// Longest file of metadata, in bytes.
pub const MAX_BYTES: u64 = 64 << 10;

/// The record of a facility.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// Version of the form.
    pub version: u32,
    /// Kind of the facility, with its repository.
    #[serde(flatten)]
    pub kind: Kind,
    /// Time at which it was created, in milliseconds since 1970.
    pub created_ms: u64,
}

/// Reason for which a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// A newer program wrote it.
    #[error("it was written by a newer version of Nexus (form {found}; this program knows {VERSION}): update this one")]
    Newer {
        /// The version of the form.
        found: u64,
    },
    /// It cannot be read.
    #[error("it is damaged: {0}")]
    Damaged(#[source] serde_json::Error),
}

impl Metadata {
    /// Reads a record.
    pub fn read(bytes: &[u8]) -> Result<Self, MetadataError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u64,
        }
        let versioned: Versioned = serde_json::from_slice(bytes).map_err(MetadataError::Damaged)?;
        if versioned.version > u64::from(VERSION) {
            return Err(MetadataError::Newer { found: versioned.version });
        }
        serde_json::from_slice(bytes).map_err(MetadataError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_newer_program_is_refused_by_its_version() {
        let record = Metadata { version: VERSION, kind: Kind::Repo { repo_url: None }, created_ms: 7 };
        let text = serde_json::to_vec(&record).unwrap();
        assert_eq!(Metadata::read(&text).unwrap(), record);
        let newer = br#"{"version":2,"kind":"unheard_of","created_ms":1}"#;
        assert!(matches!(Metadata::read(newer), Err(MetadataError::Newer { found: 2 })));
        for bad in [&b"{}"[..], b"", b"null", br#"{"version":1,"kind":"repo","repo_url":"/etc","created_ms":1}"#] {
            assert!(matches!(Metadata::read(bad), Err(MetadataError::Damaged(_))), "{bad:?}");
        }
    }
}
