//! Text form of a hash: `blake3:` and 64 hexadecimal digits.

use crate::canonical;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A BLAKE3 hash. Also known to `b3sum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Some text was no hash in the one form that is written.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not blake3: and 64 lower-case hexadecimal digits")]
pub struct ParseDigestError {
    /// Text that is not a hash.
    pub text: String,
}

const PREFIX: &str = "blake3:";

impl Digest {
    /// The hash of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the hash of a value's canonical JSON; `None` for a value without one (a map whose keys are not text).
    pub fn of_json(value: &impl Serialize) -> Option<Self> {
        serde_json::to_value(value).ok().map(|value| Self::of(&canonical::bytes(&value)))
    }

    /// The hash of an object's canonical JSON, of whose lists one element at a time is in memory.
    pub fn of_members(members: Vec<(&str, canonical::Member<'_>)>) -> Option<Self> {
        let mut hasher = blake3::Hasher::new();
        canonical::pieces(members, &mut |piece| {
            hasher.update(piece);
        })
        .ok()?;
        Some(Self::finished(&hasher))
    }

    /// Returns the digest of an incremental hash.
    #[must_use]
    pub fn finished(hasher: &blake3::Hasher) -> Self {
        Self(*hasher.finalize().as_bytes())
    }

    /// The digits alone.
    #[must_use]
    pub fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// From the digits alone.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let plain = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let hash = plain.then(|| blake3::Hash::from_hex(text).ok())??;
        Some(Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix(PREFIX).and_then(Self::from_hex);
        digits.ok_or_else(|| ParseDigestError { text: text.to_owned() })
    }
}

impl TryFrom<String> for Digest {
    type Error = ParseDigestError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling_and_reads_back() {
        // The test vector of the BLAKE3 paper for no input.
        let empty = Digest::of(b"");
        assert_eq!(empty.to_string(), "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262");
        assert_eq!(empty.to_string().parse(), Ok(empty));
        let text = empty.to_string();
        let upper = text.to_uppercase();
        for bad in [&text[..70], &upper, "", "blake3:", &text.replace("blake3", "sha256"), &format!("{text}0")] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
