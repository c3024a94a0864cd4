//! Signatures of the heads of audit chains (Ed25519), and their check, which needs no server.
//!
//! The key is derived from the random key of the store, so that servers that share a database sign with one key, and it moves
//! with the database. It signs nothing else.

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use data_encoding::BASE64;
use nexus_api::Timestamp;
use nexus_api::audit_head::{AuditHead, HEAD_SCHEMA, HeadProblem, SignedHead};

/// SPKI, algorithm 1.3.101.112, a bit string of 32 bytes.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

/// Key that signs heads.
pub struct HeadKey {
    pair: Ed25519KeyPair,
    /// Public half, as SPKI in PEM.
    public: String,
}

impl HeadKey {
    /// Derives the key from the random key of a store.
    pub fn derive(store_key: &[u8]) -> Result<Self, aws_lc_rs::error::KeyRejected> {
        let seed = blake3::derive_key("nexus mothership 2026 key of the heads of audit chains", store_key);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed)?;
        let public = pem(pair.public_key().as_ref());
        Ok(Self { pair, public })
    }

    /// Signs a head.
    #[must_use]
    pub fn sign(&self, head: AuditHead, now: i64) -> SignedHead {
        let AuditHead { account, seq, hash } = head;
        let (schema, key) = (HEAD_SCHEMA.to_owned(), self.public.clone());
        let unsigned = SignedHead { schema, account, seq, hash, at: Timestamp(now), key, signature: String::new() };
        let signature = BASE64.encode(self.pair.sign(&unsigned.signed_bytes()).as_ref());
        SignedHead { signature, ..unsigned }
    }
}

fn pem(public: &[u8]) -> String {
    format!("{BEGIN}\n{}\n{END}\n", BASE64.encode(&[&SPKI, public].concat()))
}

/// Reads the one public key of a text in PEM form and writes it in the one form that heads have; `None` if there is none.
#[must_use]
pub fn head_key(text: &str) -> Option<String> {
    Some(pem(&public(text)?))
}

fn public(text: &str) -> Option<[u8; 32]> {
    let body = text.split_once(BEGIN)?.1.split_once(END)?.0;
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    BASE64.decode(body.as_bytes()).ok()?.strip_prefix(&SPKI)?.try_into().ok()
}

/// Checks a signed head: its form, its signature by the key that it names, and whether that is `key`.
pub fn check_head(head: &SignedHead, key: Option<&str>) -> Result<(), HeadProblem> {
    let named = public(&head.key).ok_or(HeadProblem::Unreadable)?;
    if head.schema != HEAD_SCHEMA {
        return Err(HeadProblem::Unreadable);
    }
    let signature = BASE64.decode(head.signature.as_bytes()).map_err(|_| HeadProblem::BadSignature)?;
    UnparsedPublicKey::new(&ED25519, named)
        .verify(&head.signed_bytes(), &signature)
        .map_err(|_| HeadProblem::BadSignature)?;
    match key {
        Some(key) if public(key) != Some(named) => Err(HeadProblem::WrongKey),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::digest::Digest;
    use nexus_model::ids::AccountId;

    fn head() -> AuditHead {
        AuditHead { account: AccountId::from_bytes([7; 16]), seq: 40, hash: Digest::of(b"event 40") }
    }

    #[test]
    fn a_signed_head_counts_only_as_it_was_signed_and_for_its_key() {
        let (one, other) = (HeadKey::derive(&[1; 32]).unwrap(), HeadKey::derive(&[2; 32]).unwrap());
        let signed = one.sign(head(), 1_800_000_000_000);
        assert_eq!(check_head(&signed, None), Ok(()));
        assert_eq!(check_head(&signed, Some(&one.public)), Ok(()));
        assert_eq!(check_head(&signed, Some(&other.public)), Err(HeadProblem::WrongKey));
        assert_eq!(check_head(&other.sign(head(), 1), Some(&one.public)), Err(HeadProblem::WrongKey));
        let changed = |change: &dyn Fn(&mut SignedHead)| {
            let mut changed = signed.clone();
            change(&mut changed);
            check_head(&changed, None)
        };
        let bad = Err(HeadProblem::BadSignature);
        assert_eq!(changed(&|head| head.seq = 41), bad);
        assert_eq!(changed(&|head| head.hash = Digest::of(b"another")), bad);
        assert_eq!(changed(&|head| head.at = Timestamp(1)), bad);
        assert_eq!(changed(&|head| head.account = AccountId::from_bytes([8; 16])), bad);
        assert_eq!(changed(&|head| head.key.clone_from(&other.public)), bad);
        assert_eq!(changed(&|head| head.signature.clear()), bad);
        assert_eq!(changed(&|head| head.key.clear()), Err(HeadProblem::Unreadable));
        assert_eq!(changed(&|head| head.schema = "nexus.audit-head/2".to_owned()), Err(HeadProblem::Unreadable));
        assert_eq!(
            HeadKey::derive(&[1; 32]).unwrap().public,
            one.public,
            "a server that starts again signs with its key"
        );
    }

    #[test]
    fn the_key_is_written_in_one_form() {
        let key = HeadKey::derive(&[1; 32]).unwrap();
        assert_eq!(head_key(&format!("a remark\n{}", key.public.replace('\n', "\r\n"))).unwrap(), key.public);
        assert_eq!(head_key("no key"), None);
    }
}
