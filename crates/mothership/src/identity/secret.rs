//! Secrets that the server makes and stores only as hashes.

use crate::store::error::StoreError;
use crate::store::types::SecretHash;
use aws_lc_rs::{digest, rand};
use data_encoding::BASE32_NOPAD;

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
