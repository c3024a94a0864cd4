//! Ed25519 keys and their text forms: PKCS#8 and SPKI in PEM (RFC 8410, RFC 7468), which openssl reads too.
//!
//! Both have one length for every key, so that they are written and read by their bytes. A seed is wiped from memory
//! when it is dropped.

use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use nexus_model::bytes::{base64_decode, base64_encode};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Length of a private key's file.
pub const PRIVATE_KEY_BYTES: usize = PRIVATE_BEGIN.len() + PRIVATE_BODY + PRIVATE_END.len();

const PRIVATE_BEGIN: &str = "-----BEGIN PRIVATE KEY-----\n";
const PRIVATE_END: &str = "\n-----END PRIVATE KEY-----\n";
const PRIVATE_BODY: usize = 64;
/// PKCS#8, version 0, algorithm 1.3.101.112, an octet string in an octet string.
const PRIVATE_DER: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const PUBLIC_BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const PUBLIC_END: &str = "-----END PUBLIC KEY-----";
/// SPKI, algorithm 1.3.101.112, a bit string.
const PUBLIC_DER: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Reason why a text cannot be read as a key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyTextError {
    /// The text is not a private key as Nexus writes it.
    #[error("it is not an Ed25519 private key (PKCS#8 in PEM)")]
    Private,
    /// The text is not a public key.
    #[error("it holds no Ed25519 public key (-----BEGIN PUBLIC KEY-----)")]
    Public,
    /// The bytes are not a point of the curve, or a point of small order under which anything could be signed.
    #[error("its public key is not one that a signature can be checked with")]
    Weak,
}

/// A key's name: the first half of the BLAKE3 hash of its 32 public bytes, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId(String);

impl KeyId {
    /// Returns the 32 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Error for a text that is not the name of a key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a key id (32 lower-case hexadecimal digits)")]
pub struct ParseKeyIdError {
    /// The text that was given.
    pub text: String,
}

impl TryFrom<String> for KeyId {
    type Error = ParseKeyIdError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text))
        } else {
            Err(ParseKeyIdError { text })
        }
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.0
    }
}

/// The secret half.
pub struct Seed(Zeroizing<[u8; 32]>);

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

impl Seed {
    /// Makes a seed from 32 random bytes.
    #[must_use]
    pub fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// Reads only the text that [`Self::to_pem`] wrote.
    pub fn from_pem(text: &[u8]) -> Result<Self, KeyTextError> {
        let body =
            text.strip_prefix(PRIVATE_BEGIN.as_bytes()).and_then(|rest| rest.strip_suffix(PRIVATE_END.as_bytes()));
        let body: &[u8; PRIVATE_BODY] = body.and_then(|body| body.try_into().ok()).ok_or(KeyTextError::Private)?;
        let der = decode(body).ok_or(KeyTextError::Private)?;
        if der[..PRIVATE_DER.len()] != PRIVATE_DER {
            return Err(KeyTextError::Private);
        }
        let mut seed = Zeroizing::new([0; 32]);
        seed.copy_from_slice(&der[PRIVATE_DER.len()..]);
        Ok(Self(seed))
    }

    /// Returns the key as PKCS#8 in PEM.
    #[must_use]
    pub fn to_pem(&self) -> Zeroizing<String> {
        let mut der = Zeroizing::new([0; 48]);
        der[..PRIVATE_DER.len()].copy_from_slice(&PRIVATE_DER);
        der[PRIVATE_DER.len()..].copy_from_slice(&*self.0);
        let body = Zeroizing::new(base64_encode(&*der));
        let mut text = Zeroizing::new(String::with_capacity(PRIVATE_KEY_BYTES));
        for part in [PRIVATE_BEGIN, &body, PRIVATE_END] {
            text.push_str(part);
        }
        text
    }

    /// Returns the key to sign with.
    #[must_use]
    pub fn signer(&self) -> Pair {
        let key = SigningKey::from_bytes(&self.0);
        Pair { public: PublicKey(key.verifying_key()), key }
    }

    /// Returns a tag for a value of the environment: the same tag for the same value under the same key. Without the
    /// key, a guessed value cannot be checked against its tag.
    #[must_use]
    pub fn tag(&self, name: &[u8], value: &[u8]) -> String {
        let key = Zeroizing::new(blake3::derive_key("nexus receipt 2026 tag of an environment variable", &*self.0));
        let mut hasher = blake3::Hasher::new_keyed(&key);
        // A name has no NUL byte.
        hasher.update(name).update(&[0]).update(value);
        format!("tag:{}", &hasher.finalize().to_hex()[..32])
    }
}

/// Private and public key, ready for use.
pub struct Pair {
    key: SigningKey,
    public: PublicKey,
}

impl Pair {
    /// Returns the public key.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs bytes that already contain their purpose.
    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.key.sign(bytes).to_bytes()
    }
}

/// The public half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Returns the name of the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        KeyId(blake3::hash(self.0.as_bytes()).to_hex()[..32].to_owned())
    }

    /// Returns the key as SPKI in PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let der = [&PUBLIC_DER[..], self.0.as_bytes()].concat();
        format!("{PUBLIC_BEGIN}\n{}\n{PUBLIC_END}\n", base64_encode(&der))
    }

    /// Reads every public key in a text; other lines are remarks.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>, KeyTextError> {
        let mut found = Vec::new();
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line != PUBLIC_BEGIN {
                continue;
            }
            let body: String = lines.by_ref().take_while(|line| *line != PUBLIC_END).take(8).collect();
            found.push(Self::from_der(&base64_decode(&body).ok_or(KeyTextError::Public)?)?);
        }
        if found.is_empty() { Err(KeyTextError::Public) } else { Ok(found) }
    }

    fn from_der(der: &[u8]) -> Result<Self, KeyTextError> {
        let bytes: &[u8; 32] =
            der.strip_prefix(&PUBLIC_DER).and_then(|bytes| bytes.try_into().ok()).ok_or(KeyTextError::Public)?;
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| KeyTextError::Weak)?;
        if key.is_weak() { Err(KeyTextError::Weak) } else { Ok(Self(key)) }
    }

    /// Reports whether this key made this signature of these bytes. Strict: one signature has one spelling.
    pub(super) fn made(&self, signature: &[u8; 64], bytes: &[u8]) -> bool {
        self.0.verify_strict(bytes, &ed25519_dalek::Signature::from_bytes(signature)).is_ok()
    }
}

impl FromStr for PublicKey {
    type Err = KeyTextError;
    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        Self::all_from_pem(text)?.pop().ok_or(KeyTextError::Public)
    }
}

/// Keys whose signatures count.
#[derive(Debug, Clone, Default)]
pub struct Keyring(Vec<PublicKey>);

impl Keyring {
    /// Makes a ring of these keys.
    #[must_use]
    pub fn new(keys: Vec<PublicKey>) -> Self {
        Self(keys)
    }

    /// Adds a key unless it is there already.
    pub fn add(&mut self, key: PublicKey) {
        if !self.0.contains(&key) {
            self.0.push(key);
        }
    }

    /// Returns the key of this name.
    #[must_use]
    pub fn get(&self, id: &KeyId) -> Option<&PublicKey> {
        self.0.iter().find(|key| key.id() == *id)
    }
}

/// Decodes Base64 of 48 bytes, which has no padding. The general decoder would leave copies behind.
fn decode(text: &[u8; PRIVATE_BODY]) -> Option<Zeroizing<[u8; 48]>> {
    let mut out = Zeroizing::new([0; 48]);
    for (four, three) in text.chunks_exact(4).zip(out.chunks_exact_mut(3)) {
        let mut word = 0u32;
        for byte in four {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            word = word << 6 | u32::from(value);
        }
        three.copy_from_slice(&word.to_be_bytes()[1..]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of RFC 8410, section 10.3, and its public half of section 10.1.
    const RFC_PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
        MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
    const RFC_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";

    #[test]
    fn the_keys_of_rfc_8410_are_read_and_written_as_they_stand_there() {
        let seed = Seed::from_pem(RFC_PRIVATE.as_bytes()).unwrap();
        assert_eq!(*seed.to_pem(), RFC_PRIVATE);
        assert_eq!(RFC_PRIVATE.len(), PRIVATE_KEY_BYTES);
        assert_eq!(seed.signer().public().to_pem(), RFC_PUBLIC);
        assert_eq!(PublicKey::all_from_pem(RFC_PUBLIC).unwrap(), [seed.signer().public().clone()]);
        assert!(!format!("{seed:?}").contains("MC4C") && format!("{seed:?}").len() < 10);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for length in 0..RFC_PRIVATE.len() {
            assert_eq!(Seed::from_pem(&RFC_PRIVATE.as_bytes()[..length]).unwrap_err(), KeyTextError::Private);
        }
        let other = RFC_PRIVATE.replace("MC4C", "MC8C");
        assert_eq!(Seed::from_pem(other.as_bytes()).unwrap_err(), KeyTextError::Private);
        for length in 0..RFC_PUBLIC.len() - 28 {
            assert_eq!(PublicKey::all_from_pem(&RFC_PUBLIC[..length]).unwrap_err(), KeyTextError::Public, "{length}");
        }
        assert_eq!(PublicKey::all_from_pem(RFC_PRIVATE).unwrap_err(), KeyTextError::Public);
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        // The neutral element: y = 1.
        let mut der = PUBLIC_DER.to_vec();
        der.extend([1; 1]);
        der.extend([0; 31]);
        let text = format!("{PUBLIC_BEGIN}\n{}\n{PUBLIC_END}\n", base64_encode(&der));
        assert_eq!(PublicKey::all_from_pem(&text).unwrap_err(), KeyTextError::Weak);
    }

    #[test]
    fn a_tag_tells_equal_values_and_nothing_without_the_key() {
        let seed = |byte| Seed::new(Zeroizing::new([byte; 32]));
        let tag = seed(1).tag(b"TOKEN", b"1234");
        assert_eq!(tag, seed(1).tag(b"TOKEN", b"1234"));
        assert_ne!(tag, seed(1).tag(b"TOKEN", b"1235"));
        assert_ne!(tag, seed(1).tag(b"TOKEN2", b"1234"));
        assert_ne!(tag, seed(2).tag(b"TOKEN", b"1234"), "whoever guesses the value needs the key, too");
    }
}
