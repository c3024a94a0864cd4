//! The address of a server.

use super::error::ClientError;
use http::Uri;

/// Scheme, host, port and path prefix of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The connection is encrypted.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Value of the header `Host`.
    pub authority: String,
    /// Path that stands before every route, without a slash at its end.
    pub prefix: String,
}

impl Origin {
    /// Reads `http://host:port` or `https://host`, with a path or without one.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let fault = |why| ClientError::Address { address: text.chars().take(200).collect(), why };
        let uri: Uri = text.parse().map_err(|_| fault("it is not a URL"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(fault("it does not begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| fault("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(fault("it contains a user name"));
        }
        if uri.query().is_some() {
            return Err(fault("it contains a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(fault("it names no host"));
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { tls, host, port, authority: authority.as_str().to_owned(), prefix })
    }

    /// Returns whether a request leaves this machine only under TLS. A name other than `localhost` may lead anywhere.
    #[must_use]
    pub fn is_private(&self) -> bool {
        let local = || self.host.parse().map_or(self.host.eq_ignore_ascii_case("localhost"), super::plain::is_loopback);
        self.tls || local()
    }

    /// The address as people read it.
    #[must_use]
    pub fn display(&self) -> String {
        format!("{}://{}{}", if self.tls { "https" } else { "http" }, self.authority, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gives_host_port_and_prefix() {
        let origin = Origin::parse("https://fleet.example/nexus/").unwrap();
        assert_eq!(
            (origin.tls, origin.host.as_str(), origin.port, origin.prefix.as_str()),
            (true, "fleet.example", 443, "/nexus")
        );
        let local = Origin::parse("http://[::1]:8080").unwrap();
        assert_eq!((local.tls, local.host.as_str(), local.port, local.prefix.as_str()), (false, "::1", 8080, ""));
    }

    #[test]
    fn plain_http_is_private_on_loopback_alone() {
        for text in
            ["https://fleet.example", "http://127.0.0.1:1", "http://127.9.9.9", "http://[::1]", "http://LocalHost:1"]
        {
            assert!(Origin::parse(text).unwrap().is_private(), "{text}");
        }
        for text in
            ["http://fleet.example", "http://10.0.0.1", "http://0.0.0.0", "http://[::]", "http://localhost.example"]
        {
            assert!(!Origin::parse(text).unwrap().is_private(), "{text}");
        }
    }

    #[test]
    fn an_address_that_is_not_one_of_a_server_is_refused() {
        for text in ["", "fleet.example", "ftp://x", "http://", "http://user:word@x", "http://x?y=1", "/a"] {
            assert!(Origin::parse(text).is_err(), "{text}");
        }
    }
}
