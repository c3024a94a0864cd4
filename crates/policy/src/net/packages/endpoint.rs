//! A place that a client connects to, from a URL, with the login in it split off.

use crate::net::rules::name::HostError;
use crate::net::rules::target::{Host, Port, Target, TargetError};
use std::fmt;
use url::Url;

/// Protocol that a client uses with an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scheme {
    /// HTTP without TLS.
    Http,
    /// HTTP with TLS.
    Https,
    /// Git over ssh.
    Ssh,
}

/// Address of a server that a client uses, without any login.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The protocol of the URL.
    pub scheme: Scheme,
    /// The host and port.
    pub target: Target,
    /// The path of the URL, without query and fragment, which may hold tokens.
    pub path: String,
    /// The key of the setting that holds the URL.
    pub setting: String,
}

/// A value that no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the value, for the one place that uses it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A user name, password or token as the client has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// A login for HTTP Basic; the user name may be a token too.
    Basic {
        /// The user name.
        user: Secret,
        /// The password, empty where there is none.
        password: Secret,
    },
    /// A token for HTTP Bearer.
    Token(Secret),
    /// A client's own encoding.
    Encoded(Secret),
}

/// A login and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// The host and port that the login is for.
    pub target: Target,
    /// The path below which the login is valid.
    pub path: String,
    /// The login itself.
    pub login: Login,
}

/// Reason why a text cannot be read as an endpoint. No variant holds the URL, which may hold a login.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// The text is not a URL.
    #[error("it is not a URL")]
    NotAUrl,
    /// A scheme that no rule covers.
    #[error("the scheme {scheme} is not known")]
    Scheme {
        /// The scheme of the URL.
        scheme: String,
    },
    /// The URL has no host.
    #[error("it has no host")]
    NoHost,
    /// The host cannot be read.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The port cannot be used.
    #[error(transparent)]
    Port(#[from] TargetError),
}

impl Endpoint {
    /// Reads a URL; the login is returned beside it and is not part of the endpoint.
    pub(super) fn parse(setting: &str, text: &str) -> Result<(Self, Option<Login>), EndpointError> {
        let url = Url::parse(text.trim()).map_err(|_| EndpointError::NotAUrl)?;
        let (scheme, default) = match url.scheme() {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            "ssh" => (Scheme::Ssh, 22),
            other => return Err(EndpointError::Scheme { scheme: other.into() }),
        };
        // The canonical type reads the host, not the URL parser's: one spelling for rules and clients.
        let host = match url.host().ok_or(EndpointError::NoHost)? {
            url::Host::Domain(name) => Host::parse(name)?,
            url::Host::Ipv4(address) => Host::of_address(address.into()),
            url::Host::Ipv6(address) => Host::of_address(address.into()),
        };
        let port = Port::new(url.port().unwrap_or(default))?;
        let has_login = !url.username().is_empty() || url.password().is_some();
        let login = has_login.then(|| Login::Basic {
            user: Secret::new(url.username()),
            password: Secret::new(url.password().unwrap_or_default()),
        });
        let endpoint = Self { scheme, target: Target { host, port }, path: url.path().into(), setting: setting.into() };
        Ok((endpoint, login))
    }

    /// Returns the URL without a login.
    pub fn url(&self) -> String {
        let (scheme, default) = match self.scheme {
            Scheme::Http => ("http", 80),
            Scheme::Https => ("https", 443),
            Scheme::Ssh => ("ssh", 22),
        };
        let full = self.target.to_string();
        let authority = full.strip_suffix(&format!(":{default}")).unwrap_or(&full);
        format!("{scheme}://{authority}{}", self.path)
    }
}
