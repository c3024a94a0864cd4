//! Links from an old key to its successor: the old key signs the new one. A person who trusts the old key can then
//! trust the new one without meeting its owner.

use super::envelope::{self, Sealed, VerifyError};
use crate::keys::{KeyTextError, Keyring, Pair, PublicKey};
use serde::{Deserialize, Serialize};

const PAYLOAD_TYPE: &str = "application/vnd.nexus.key-link+json";
const SCHEMA: &str = "nexus.key-link/1";

/// A statement of an old key about its successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    schema: String,
    /// The successor, as PEM.
    new_key: String,
    /// When, in milliseconds since 1970 in UTC, by the machine's clock.
    pub rotated_unix_ms: u64,
}

/// Reason why a link is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LinkError {
    /// The signature, or the envelope.
    #[error(transparent)]
    Envelope(#[from] VerifyError),
    /// The content is signed but cannot be read as a link.
    #[error("its content is not that of a link between keys: {why}")]
    Content {
        /// The reason, from the parser.
        why: String,
    },
    /// The key that it names.
    #[error("the key that it names cannot be used: {0}")]
    Key(#[from] KeyTextError),
}

impl Link {
    /// Signs the statement of the old key.
    pub fn seal(old: &Pair, new: &PublicKey, rotated_unix_ms: u64) -> Result<Sealed, serde_json::Error> {
        let link = Self { schema: SCHEMA.to_owned(), new_key: new.to_pem(), rotated_unix_ms };
        envelope::seal_bytes(PAYLOAD_TYPE, &serde_json::to_vec(&link)?, old)
    }

    /// Returns the successor and the statement, if a key of the ring signed it.
    pub fn open(file: &[u8], keys: &Keyring) -> Result<(PublicKey, Self), LinkError> {
        let (payload, _) = envelope::open_bytes(PAYLOAD_TYPE, file, keys)?;
        let content = |why: String| LinkError::Content { why };
        let link: Self = serde_json::from_slice(&payload).map_err(|error| content(error.to_string()))?;
        if link.schema != SCHEMA {
            return Err(content(format!("its form is {:?}", link.schema)));
        }
        Ok((link.new_key.parse()?, link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Seed;
    use zeroize::Zeroizing;

    fn pair(byte: u8) -> Pair {
        Seed::new(Zeroizing::new([byte; 32])).signer()
    }

    #[test]
    fn a_link_leads_from_a_trusted_key_to_its_successor_and_from_no_other() {
        let (old, new, stranger) = (pair(1), pair(2), pair(3));
        let sealed = Link::seal(&old, new.public(), 7).unwrap();
        let (found, link) = Link::open(&sealed.file, &Keyring::new(vec![old.public().clone()])).unwrap();
        assert_eq!((&found, link.rotated_unix_ms), (new.public(), 7));
        let error = Link::open(&sealed.file, &Keyring::new(vec![stranger.public().clone()])).unwrap_err();
        assert_eq!(error, LinkError::Envelope(VerifyError::UnknownKey { key_id: old.public().id() }));
    }

    #[test]
    fn a_link_is_no_receipt() {
        let (old, new) = (pair(1), pair(2));
        let sealed = Link::seal(&old, new.public(), 7).unwrap();
        let error = envelope::open(&sealed.file, &Keyring::new(vec![old.public().clone()])).unwrap_err();
        assert!(matches!(error, VerifyError::WrongType { .. }), "{error}");
    }
}
