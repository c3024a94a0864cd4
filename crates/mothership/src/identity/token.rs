//! Directive tokens: signed proofs that a territory holds a directive. They have the form of a JWT with the one algorithm HS256.

use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use nexus_model::directive::Fence;
use nexus_model::ids::{DirectiveId, TerritoryId};
use serde::{Deserialize, Serialize};

/// Claims of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenClaims {
    /// Directive of the claim.
    pub sub: DirectiveId,
    /// Territory that holds it.
    pub territory: TerritoryId,
    /// Number of the claim.
    pub fence: Fence,
    /// Count of claims.
    pub attempt: u32,
    /// End of the token's life, in seconds since 1970 by the time of the store.
    pub exp: i64,
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    typ: String,
    kid: String,
}

/// Reason why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is not a token of this server.
    #[error("the directive token is not one of this server")]
    Forged,
}

const ALGORITHM: &str = "HS256";

/// Key that signs tokens.
pub struct TokenKey {
    key: hmac::Key,
    kid: String,
}

impl TokenKey {
    /// Returns the key with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let kid = BASE64URL_NOPAD.encode(super::secret::sha256(bytes).get(..6).unwrap_or_default());
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, bytes), kid }
    }

    /// Returns the token with these claims.
    #[must_use]
    pub fn sign(&self, claims: &TokenClaims) -> String {
        let header = Header { alg: ALGORITHM.to_owned(), typ: "JWT".to_owned(), kid: self.kid.clone() };
        let signed = format!("{}.{}", part(&header), part(claims));
        let signature = hmac::sign(&self.key, signed.as_bytes());
        format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
    }

    /// Returns the claims of a token whose signature is good. The caller compares `exp` with the time of the store.
    pub fn verify(&self, token: &str) -> Result<TokenClaims, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Forged)?;
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).map_err(|_| TokenError::Forged)?;
        // The signature comes first: nothing of a forged token is read, its header least of all.
        hmac::verify(&self.key, signed.as_bytes(), &signature).map_err(|_| TokenError::Forged)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Forged)?;
        let header: Header = read(header)?;
        if header.alg != ALGORITHM || header.kid != self.kid {
            return Err(TokenError::Forged);
        }
        read(claims)
    }
}

fn part(value: &impl Serialize) -> String {
    // Both types are plain structs, which always have a JSON form.
    BASE64URL_NOPAD.encode(&serde_json::to_vec(value).unwrap_or_default())
}

fn read<T: for<'a> Deserialize<'a>>(part: &str) -> Result<T, TokenError> {
    let bytes = BASE64URL_NOPAD.decode(part.as_bytes()).map_err(|_| TokenError::Forged)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> TokenClaims {
        TokenClaims { sub: DirectiveId::new(), territory: TerritoryId::new(), fence: Fence(7), attempt: 1, exp: 1_000 }
    }

    #[test]
    fn a_token_reads_back_and_another_key_refuses_it() {
        let (key, claims) = (TokenKey::new(&[1; 32]), claims());
        let token = key.sign(&claims);
        assert_eq!(key.verify(&token), Ok(claims));
        assert_eq!(TokenKey::new(&[2; 32]).verify(&token), Err(TokenError::Forged));
    }

    #[test]
    fn a_token_with_one_changed_letter_is_refused() {
        let key = TokenKey::new(&[1; 32]);
        let token = key.sign(&claims());
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(key.verify(&changed), Err(TokenError::Forged), "letter {at}");
        }
    }

    #[test]
    fn a_token_without_a_signature_is_refused() {
        let key = TokenKey::new(&[1; 32]);
        let header = BASE64URL_NOPAD.encode(br#"{"alg":"none","typ":"JWT","kid":""}"#);
        let body = part(&claims());
        for token in [format!("{header}.{body}."), format!("{header}.{body}"), String::new(), "..".to_owned()] {
            assert_eq!(key.verify(&token), Err(TokenError::Forged), "{token}");
        }
    }
}
