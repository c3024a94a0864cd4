//! Secrets that the server makes and stores only as hashes.

use crate::store::error::StoreError;
use crate::store::types::SecretHash;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::{digest, rand};
use data_encoding::BASE32_NOPAD;
use std::fmt;
use std::sync::Arc;

/// Returns random bytes.
pub fn random<const N: usize>() -> Result<[u8; N], StoreError> {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).map_err(|_| StoreError::Secret { why: "the random number generator failed".to_owned() })?;
    Ok(bytes)
}

/// Returns the SHA-256 hash of these bytes.
pub fn sha256(bytes: &[u8]) -> SecretHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    hash
}

/// A new secret: the text for its owner, and the hash for the store.
pub struct Secret {
    /// Text that its owner keeps.
    pub text: String,
    /// Hash of the text. The text has 200 random bits, so that a plain hash cannot be searched.
    pub hash: SecretHash,
}

impl Secret {
    /// Makes a secret whose text begins with `prefix`.
    pub fn make(prefix: &str) -> Result<Self, StoreError> {
        let bytes: [u8; 25] = random()?;
        let text = format!("{prefix}{}", BASE32_NOPAD.encode(&bytes).to_ascii_lowercase());
        let hash = sha256(text.as_bytes());
        Ok(Self { text, hash })
    }
}

/// A secret that a server shares with the daemon of its own process. It lies in the memory of that process alone.
#[derive(Clone, PartialEq, Eq)]
pub struct ProcessSecret {
    text: Arc<str>,
}

impl ProcessSecret {
    /// Makes a secret of 200 random bits.
    pub fn make() -> Result<Self, StoreError> {
        Ok(Self { text: Secret::make("nxp_")?.text.into() })
    }

    /// Returns the text that the daemon sends.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Compares a text that a client sent, in a time that tells nothing about the secret.
    pub(crate) fn matches(&self, given: &str) -> bool {
        verify_slices_are_equal(&sha256(given.as_bytes()), &sha256(self.text.as_bytes())).is_ok()
    }
}

/// A secret that a proxy shows beside the identity of a client: an address on this machine is every user's.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxySecret {
    hash: SecretHash,
}

impl ProxySecret {
    /// Shortest and longest secret, in bytes.
    pub const LENGTH: std::ops::RangeInclusive<usize> = 32..=256;

    /// Reads a secret; `None` when it is too short, too long, or cannot stand in a header.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let is_good = Self::LENGTH.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_good.then(|| Self { hash: sha256(text.as_bytes()) })
    }

    /// Compares a text that a client sent, in a time that tells nothing about the secret.
    pub(crate) fn matches(&self, given: &str) -> bool {
        verify_slices_are_equal(&sha256(given.as_bytes()), &self.hash).is_ok()
    }
}

impl fmt::Debug for ProxySecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProxySecret(hidden)")
    }
}

impl fmt::Debug for ProcessSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProcessSecret(hidden)")
    }
}
