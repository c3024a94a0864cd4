//! Digests, which name blobs.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io::{self, Read};

/// A digest of another kind or form.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is not a digest: it is written as sha256: and 64 lower-case hexadecimal digits")]
pub struct DigestForm {
    /// The text, shortened.
    pub text: String,
}

/// A SHA-256 of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// Computes the digest of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads `sha256:` and 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, DigestForm> {
        let refused = || DigestForm { text: text.chars().take(100).collect() };
        Self::from_hex(text.strip_prefix("sha256:").ok_or_else(refused)?).ok_or_else(refused)
    }

    /// Reads 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        HEXLOWER.decode(hex.as_bytes()).ok()?.try_into().ok().map(Self)
    }

    /// Returns the hexadecimal digits, which are a file name in the store.
    #[must_use]
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// Returns the chain id of layers, as the image specification defines it: it names what they are together.
    #[must_use]
    pub fn chain(layers: &[Self]) -> Self {
        let Some((first, rest)) = layers.split_first() else { return Self::of(b"") };
        rest.iter().fold(*first, |chain, layer| Self::of(format!("{chain} {layer}").as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestForm;
    fn try_from(text: String) -> Result<Self, DigestForm> {
        Self::parse(&text)
    }
}

/// Passes bytes on, and counts and hashes them.
pub struct Hashed<R> {
    inner: R,
    hash: Sha256,
    bytes: u64,
}

impl<R: Read> Hashed<R> {
    /// Wraps a reader.
    pub fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), bytes: 0 }
    }

    /// Returns what is read from.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// Returns the digest and the number of the bytes that were read.
    pub fn finish(self) -> (Digest, u64) {
        (Digest(self.hash.finalize().into()), self.bytes)
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::parse(empty).unwrap(), Digest::of(b""));
        assert_eq!(Digest::of(b"").to_string(), empty);
        for bad in ["", "sha256:", "sha512:00", &empty[7..], &empty.to_uppercase(), &format!("{empty}0"), "sha256:../x"]
        {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_chain_names_its_layers_in_their_order() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_eq!(Digest::chain(&[a]), a);
        assert_eq!(Digest::chain(&[a, b]), Digest::of(format!("{a} {b}").as_bytes()));
        assert_ne!(Digest::chain(&[a, b]), Digest::chain(&[b, a]));
    }
}
