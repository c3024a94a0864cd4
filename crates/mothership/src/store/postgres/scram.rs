//! SCRAM-SHA-256 (RFC 5802, RFC 7677): the password is proved in both directions and is not sent.

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use nexus_api::base64;
use std::num::NonZeroU32;

/// Bounds of the work that a server may ask for.
const ROUNDS: std::ops::RangeInclusive<u32> = 4_096..=1_000_000;

/// The first message of the client, and what follows from it.
pub struct Exchange {
    nonce: String,
    first: String,
}

/// The last message of the client, and the proof that the server owes.
pub struct Proof {
    pub message: String,
    server: Vec<u8>,
}

impl Exchange {
    /// Begins an exchange with a nonce of printable characters without a comma. The name is that of the connection.
    pub fn new(nonce: String) -> Self {
        let first = format!("n=,r={nonce}");
        Self { nonce, first }
    }

    /// Returns the first message: no channel binding, no other name.
    pub fn message(&self) -> String {
        format!("n,,{}", self.first)
    }

    /// Answers the first message of the server.
    pub fn answer(&self, password: &str, challenge: &str) -> Option<Proof> {
        let mut parts = challenge.split(',');
        let nonce = parts.next()?.strip_prefix("r=")?;
        let salt = base64::decode(parts.next()?.strip_prefix("s=")?)?;
        let rounds: u32 = parts.next()?.strip_prefix("i=")?.parse().ok()?;
        // A nonce that does not go on from ours was made for another client.
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) || !ROUNDS.contains(&rounds) {
            return None;
        }
        let mut salted = [0; 32];
        let rounds = NonZeroU32::new(rounds)?;
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let client = sign(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, client.as_ref());
        let last = format!("c=biws,r={nonce}");
        let all = format!("{},{challenge},{last}", self.first);
        let signature = sign(stored.as_ref(), all.as_bytes());
        let proof: Vec<u8> = client.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
        let server = sign(sign(&salted, b"Server Key").as_ref(), all.as_bytes());
        let message = format!("{last},p={}", base64::encode(&proof));
        Some(Proof { message, server: server.as_ref().to_vec() })
    }
}

impl Proof {
    /// Returns whether the last message of the server proves that it knows the password too.
    pub fn accepts(&self, last: &str) -> bool {
        let signature = last.strip_prefix("v=").and_then(base64::decode);
        signature.is_some_and(|given| constant_time::verify_slices_are_equal(&given, &self.server).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    /// The example of RFC 7677, whose client gives its name in the message.
    fn example() -> Exchange {
        Exchange { nonce: "rOprNGfwEbeRWgbNEkqO".into(), first: "n=user,r=rOprNGfwEbeRWgbNEkqO".into() }
    }

    #[test]
    fn the_example_of_the_standard_is_answered_as_it_says() {
        let proof = example().answer("pencil", CHALLENGE).unwrap();
        let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(proof.message, expected);
        assert!(proof.accepts("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        for wrong in ["v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=", "v=", "e=other-error", ""] {
            assert!(!proof.accepts(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_server_that_asks_for_too_little_or_another_nonce_gets_no_proof() {
        for (from, to) in [("i=4096", "i=1"), ("i=4096", "i=99999999"), ("r=rOpr", "r=other"), ("s=W22", "s=!")] {
            assert!(example().answer("pencil", &CHALLENGE.replace(from, to)).is_none(), "{to}");
        }
        assert!(example().answer("pencil", "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096").is_none());
    }
}
