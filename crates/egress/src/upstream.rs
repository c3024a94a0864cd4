//! The operator's own proxy, where the host has no other way out.

use nexus_policy::net::{Target, TargetError};
use std::fmt;

/// `http://[USER:PASSWORD@]HOST:PORT`, asked with CONNECT for every destination.
#[derive(Clone)]
pub struct UpstreamProxy {
    pub(crate) target: Target,
    pub(crate) authorization: Option<String>,
}

/// Why a text is no upstream proxy. It never holds the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// Another scheme.
    #[error("the upstream proxy must be written http://[USER:PASSWORD@]HOST:PORT")]
    Form,
    /// The host or port.
    #[error("the upstream proxy is no HOST:PORT: {0}")]
    Target(TargetError),
}

impl UpstreamProxy {
    /// Reads the URL.
    pub fn parse(text: &str) -> Result<Self, UpstreamError> {
        let rest = text.strip_prefix("http://").ok_or(UpstreamError::Form)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        let authorization = match user {
            None => None,
            Some(user) => Some(format!("Basic {}", base64(&percent_decoded(user).ok_or(UpstreamError::Form)?))),
        };
        Ok(Self { target: Target::parse(host).map_err(UpstreamError::Target)?, authorization })
    }

    /// Where it listens.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = self.authorization.as_ref().map(|_| "…");
        f.debug_struct("UpstreamProxy").field("target", &self.target).field("authorization", &credentials).finish()
    }
}

fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let [high, low, tail @ ..] = tail else { return None };
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit(*high)? << 4 | digit(*low)?);
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    Some(bytes)
}

/// RFC 4648. The credentials of one header are all that is ever encoded here.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let value = group.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = DIGITS[(value >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_become_one_header_and_show_nowhere_else() {
        let proxy = UpstreamProxy::parse("http://us%40er:pa:ss@proxy.test:3128/").unwrap();
        assert_eq!(proxy.target.to_string(), "proxy.test:3128");
        assert_eq!(proxy.authorization.as_deref(), Some("Basic dXNAZXI6cGE6c3M="));
        assert!(!format!("{proxy:?}").contains("pa:ss"));
        assert!(!format!("{proxy:?}").contains("cGE6c3M"));
    }

    #[test]
    fn other_forms_are_refused_without_repeating_them() {
        for text in
            ["https://p.test:1", "p.test:3128", "http://p.test", "http://a:secret@p.test:0", "http://%zz@p.test:1"]
        {
            let error = UpstreamProxy::parse(text).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
