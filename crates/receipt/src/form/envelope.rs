//! The envelope: the exact bytes of a document, beside a signature of them. Its form is that of DSSE 1.0
//! (`{"payload": base64, "payloadType", "signatures": [{"keyid", "sig"}]}`).
//!
//! Signed are the bytes as they stand, so that no two readers can differ in how they spell a document again; and the
//! type is signed too, so that a signature for one purpose says nothing for another. A file is read only in the one
//! spelling that is written: then none of its bytes can change unseen.
//!
//! Nothing of the document is looked at before its signature has been found good.

use super::document::{Receipt, SCHEMAS};
use crate::keys::{KeyId, Keyring, Pair};
use nexus_model::Digest;
use nexus_model::bytes::{base64_decode, base64_encode};
use serde::{Deserialize, Serialize};

/// Type of a receipt.
pub const PAYLOAD_TYPE: &str = "application/vnd.nexus.receipt+json";
/// Longest file that is read.
pub const MAX_BYTES: usize = 8 << 20;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: [Signature; 1],
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    keyid: KeyId,
    sig: String,
}

/// Reason why a file does not prove anything.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VerifyError {
    /// Larger than anything that is written.
    #[error("it is not a receipt: it has {bytes} bytes, a receipt has at most {MAX_BYTES}")]
    TooLarge {
        /// The size of the file in bytes.
        bytes: usize,
    },
    /// The end is missing.
    #[error("it is truncated: its end is missing after {bytes} bytes")]
    Truncated {
        /// The number of bytes that are present.
        bytes: usize,
    },
    /// The file is not an envelope.
    #[error("it is not a receipt: {why}")]
    NotAnEnvelope {
        /// The reason, from the parser.
        why: String,
    },
    /// An envelope, but spelled differently than it was written.
    #[error("it is not as it was written: the file was edited or formatted again")]
    Respelled,
    /// The envelope holds another type of content.
    #[error("it holds {found:?} and not {PAYLOAD_TYPE}")]
    WrongType {
        /// The payload type that the envelope claims.
        found: String,
    },
    /// The key that it names is not in the keyring.
    #[error("it is signed by the key {key_id}, which is not known here")]
    UnknownKey {
        /// The key that the envelope names.
        key_id: KeyId,
    },
    /// The signature is not of this content.
    #[error("its signature is not of this content: it was edited, or forged in the name of the key {key_id}")]
    BadSignature {
        /// The key that the envelope names.
        key_id: KeyId,
    },
    /// Signed, and of a form that this version does not know.
    #[error("its form is {found:?}, and this version reads {}", SCHEMAS.join(" and "))]
    UnknownSchema {
        /// The form that the document names.
        found: String,
    },
    /// Signed, and not a receipt by its content.
    #[error("its signature is good and its content is not that of a receipt: {why}")]
    BadContent {
        /// The reason, from the parser.
        why: String,
    },
    /// The receipt names another key than the one that signed it.
    #[error("it says that the key {named} signed it, and the key {signed} did")]
    KeyMismatch {
        /// The key that the receipt names.
        named: KeyId,
        /// The key that made the signature.
        signed: KeyId,
    },
}

impl VerifyError {
    /// Returns a stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Truncated { .. } => "truncated",
            Self::NotAnEnvelope { .. } => "not_a_receipt",
            Self::Respelled => "respelled",
            Self::WrongType { .. } => "wrong_type",
            Self::UnknownKey { .. } => "unknown_key",
            Self::BadSignature { .. } => "bad_signature",
            Self::UnknownSchema { .. } => "unknown_schema",
            Self::BadContent { .. } => "bad_content",
            Self::KeyMismatch { .. } => "key_mismatch",
        }
    }
}

/// A document in its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The bytes of the signed file.
    pub file: Vec<u8>,
    /// The hash of the document's bytes, by which others name it.
    pub hash: Digest,
}

/// A receipt whose signature is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The content of the receipt.
    pub receipt: Receipt,
    /// The hash of its bytes.
    pub hash: Digest,
    /// The bytes that were signed: the receipt as JSON.
    pub payload: Vec<u8>,
}

/// Returns the bytes to sign: the type and the content, each with its length (DSSE's pre-authentication encoding).
#[must_use]
pub fn pre_authentication(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// Signs a receipt.
pub fn seal(receipt: &Receipt, pair: &Pair) -> Result<Sealed, serde_json::Error> {
    seal_bytes(PAYLOAD_TYPE, &serde_json::to_vec(receipt)?, pair)
}

/// Signs any document.
pub(super) fn seal_bytes(payload_type: &str, payload: &[u8], pair: &Pair) -> Result<Sealed, serde_json::Error> {
    let sig = base64_encode(&pair.sign(&pre_authentication(payload_type, payload)));
    let envelope = Envelope {
        payload_type: payload_type.to_owned(),
        payload: base64_encode(payload),
        signatures: [Signature { keyid: pair.public().id(), sig }],
    };
    Ok(Sealed { file: render(&envelope)?, hash: Digest::of(payload) })
}

fn render(envelope: &Envelope) -> Result<Vec<u8>, serde_json::Error> {
    let mut file = serde_json::to_vec(envelope)?;
    file.push(b'\n');
    Ok(file)
}

/// Returns the file of a receipt that other programs passed on as JSON: its members in their order, without white space. What
/// holds another member, or is not an envelope, is an error. It proves nothing: [`open`] does.
pub fn file_of(document: &serde_json::Value) -> Result<Vec<u8>, serde_json::Error> {
    render(&Envelope::deserialize(document)?)
}

/// Reads a receipt, if one of these keys signed it.
pub fn open(file: &[u8], keys: &Keyring) -> Result<Opened, VerifyError> {
    let (payload, signed) = open_bytes(PAYLOAD_TYPE, file, keys)?;
    let bad = |error: serde_json::Error| VerifyError::BadContent { why: error.to_string() };
    let schema: Schema = serde_json::from_slice(&payload).map_err(bad)?;
    if !SCHEMAS.contains(&schema.schema.as_str()) {
        return Err(VerifyError::UnknownSchema { found: schema.schema });
    }
    let receipt: Receipt = serde_json::from_slice(&payload).map_err(bad)?;
    if receipt.key_id != signed {
        return Err(VerifyError::KeyMismatch { named: receipt.key_id, signed });
    }
    Ok(Opened { receipt, hash: Digest::of(&payload), payload })
}

#[derive(Deserialize)]
struct Schema {
    schema: String,
}

/// Reads any document, if one of these keys signed it for this purpose.
pub(super) fn open_bytes(payload_type: &str, file: &[u8], keys: &Keyring) -> Result<(Vec<u8>, KeyId), VerifyError> {
    if file.len() > MAX_BYTES {
        return Err(VerifyError::TooLarge { bytes: file.len() });
    }
    let envelope: Envelope = serde_json::from_slice(file).map_err(|error| {
        if error.is_eof() {
            VerifyError::Truncated { bytes: file.len() }
        } else {
            VerifyError::NotAnEnvelope { why: error.to_string() }
        }
    })?;
    if !file.ends_with(b"\n") {
        return Err(VerifyError::Truncated { bytes: file.len() });
    }
    if render(&envelope).map_or(true, |written| written != file) {
        return Err(VerifyError::Respelled);
    }
    if envelope.payload_type != payload_type {
        return Err(VerifyError::WrongType { found: envelope.payload_type });
    }
    let no_base64 = |what: &str| VerifyError::NotAnEnvelope { why: format!("its {what} is not base64") };
    let payload = base64_decode(&envelope.payload).ok_or_else(|| no_base64("payload"))?;
    let [Signature { keyid, sig }] = envelope.signatures;
    let sig = base64_decode(&sig).and_then(|sig| sig.try_into().ok()).ok_or_else(|| no_base64("signature"))?;
    let Some(key) = keys.get(&keyid) else { return Err(VerifyError::UnknownKey { key_id: keyid }) };
    if !key.made(&sig, &pre_authentication(payload_type, &payload)) {
        return Err(VerifyError::BadSignature { key_id: keyid });
    }
    Ok((payload, keyid))
}

#[cfg(test)]
#[path = "envelope_tests.rs"]
mod tests;
