//! Secrets and certificates: random values, hashes, directive tokens, the authority of territories.

mod authorities;
mod authority;
mod heads;
mod secret;
mod token;

pub use authorities::{Authorities, Texts};
pub use authority::{Authority, AuthorityError, CheckedRequest, Validity, certificate_key, validity};
pub use heads::{HeadKey, check_head, head_key};
pub use secret::{ProcessSecret, ProxySecret, Secret, random, sha256};
pub use token::{TokenClaims, TokenKey};
