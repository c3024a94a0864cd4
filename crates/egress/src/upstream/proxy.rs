//! Reads the address of the operator's own proxy, for a host that has no other way out.

use nexus_model::bytes::base64_encode;
use nexus_policy::net::{Target, TargetError};
use std::fmt;

/// Address `http://[USER:PASSWORD@]HOST:PORT` of a proxy that is asked with CONNECT for every destination.
#[derive(Clone)]
pub struct UpstreamProxy {
    pub(crate) target: Target,
    pub(crate) authorization: Option<String>,
}

/// Error of a text that is not an upstream proxy. It never holds the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The text has another scheme or form.
    #[error("the upstream proxy must be written http://[USER:PASSWORD@]HOST:PORT")]
    Form,
    /// The host or port is invalid.
    #[error("the upstream proxy is not HOST:PORT: {0}")]
    Target(TargetError),
}

impl UpstreamProxy {
    /// Reads the URL of a proxy.
    pub fn parse(text: &str) -> Result<Self, UpstreamError> {
        let rest = text.strip_prefix("http://").ok_or(UpstreamError::Form)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, host) = match rest.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, rest),
        };
        let authorization = match user {
            None => None,
            Some(user) => Some(format!("Basic {}", base64_encode(&percent_decoded(user).ok_or(UpstreamError::Form)?))),
        };
        Ok(Self { target: Target::parse(host).map_err(UpstreamError::Target)?, authorization })
    }

    /// Returns everything that tells this proxy from another one, its credentials included: for a hash, never for people.
    pub fn identity(&self) -> (String, Option<&str>) {
        (self.target.to_string(), self.authorization.as_deref())
    }

    /// Returns the host and port of the proxy.
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

/// Decodes `%XX`; `None` if a `%` stands for itself, which suggests that the URL was written by hand.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    let strict = text.split('%').skip(1).all(is_escape);
    strict.then(|| percent_encoding::percent_decode_str(text).collect())
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
