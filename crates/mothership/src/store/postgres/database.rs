//! The address of a database, as an operator writes it.

use crate::store::error::StoreError;
use nexus_api::client::{TlsFiles, tls_config};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use url::Url;

const PORT: u16 = 5432;

/// A PostgreSQL database and the proof of identity for it.
#[derive(Clone)]
pub struct Database {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) name: String,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// Path of a socket of this machine.
    Socket(PathBuf),
    /// Name or address.
    Name(String),
}

impl std::fmt::Debug for Database {
    /// Without the password.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?} of {:?} at {:?}, port {}", self.name, self.user, self.host, self.port)
    }
}

fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Settings { why: why.into() }
}

impl Database {
    /// Returns whether a URL holds a password.
    #[must_use]
    pub fn has_password(text: &str) -> bool {
        Url::parse(text).is_ok_and(|url| url.password().is_some())
    }

    /// Reads `postgres://USER:PASSWORD@HOST:PORT/NAME?sslrootcert=FILE`, or `postgres:///NAME?host=DIRECTORY&user=USER&port=PORT` for a socket.
    /// Beyond this machine the connection has TLS, unless the operator writes `sslmode=disable`.
    pub fn read(text: &str, provider: Arc<CryptoProvider>) -> Result<Self, StoreError> {
        // The text is not repeated: it may hold a password.
        let url = Url::parse(text).map_err(|error| refused(format!("its URL cannot be read: {error}")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(refused("its URL does not begin with postgres://"));
        }
        let decoded = |text: &str| {
            let text =
                percent_decode_str(text).decode_utf8().map_err(|_| refused("its URL has a part that is not UTF-8"))?;
            if text.contains('\0') { Err(refused("its URL holds the character U+0000")) } else { Ok(text.into_owned()) }
        };
        let mut host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let mut user = decoded(url.username())?;
        let mut port = url.port().unwrap_or(PORT);
        let (mut ca, mut is_plain) = (None, false);
        for (name, value) in url.query_pairs() {
            match (&*name, &*value) {
                ("host", value) => value.clone_into(&mut host),
                ("user", value) => value.clone_into(&mut user),
                ("port", value) => port = value.parse().map_err(|_| refused("the port of its URL is not one"))?,
                ("sslrootcert", path) => ca = Some(PathBuf::from(path)),
                ("sslmode", "disable") => is_plain = true,
                // The certificate and the name are checked always.
                ("sslmode", "require" | "verify-ca" | "verify-full") => {}
                ("sslmode", _) => return Err(refused("sslmode is disable or verify-full")),
                (name, _) => return Err(refused(format!("its URL has the parameter {name}, which is not known"))),
            }
        }
        if user.is_empty() {
            return Err(refused("its URL names no user"));
        }
        let name = decoded(url.path().trim_start_matches('/'))?;
        let name = if name.is_empty() { user.clone() } else { name };
        let host = match host.as_str() {
            "" => return Err(refused("its URL names no host")),
            path if path.starts_with('/') => Host::Socket(PathBuf::from(path).join(format!(".s.PGSQL.{port}"))),
            _ => Host::Name(decoded(&host)?),
        };
        let tls = match (&host, ca) {
            (Host::Name(_), Some(path)) if !is_plain => Some(tls(&path, provider)?),
            (Host::Name(name), _) if !is_plain && !is_here(name) => {
                return Err(refused(format!(
                    "{name} is another machine: its URL needs sslrootcert=FILE with the certificates that may sign that of the \
                     server, or sslmode=disable on a network that no other program reads"
                )));
            }
            _ => None,
        };
        let password = url.password().map(decoded).transpose()?;
        Ok(Self { host, port, user, password, name, tls })
    }
}

fn is_here(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn tls(path: &std::path::Path, provider: Arc<CryptoProvider>) -> Result<Arc<ClientConfig>, StoreError> {
    let unusable = |why: String| refused(format!("the certificates in {} cannot be used: {why}", path.display()));
    let pem = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    tls_config(&TlsFiles { ca_pem: &pem, identity: None }, provider).map_err(|error| unusable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Database, StoreError> {
        Database::read(text, Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
    }

    #[test]
    fn an_address_names_a_server_a_socket_and_a_proof() {
        let local = read("postgres://nexus:a%40b@127.0.0.1:5433/fleet").unwrap();
        assert_eq!((local.host, local.port), (Host::Name("127.0.0.1".into()), 5433));
        assert_eq!(
            (local.user.as_str(), local.password.as_deref(), local.name.as_str()),
            ("nexus", Some("a@b"), "fleet")
        );
        let socket = read("postgresql:///fleet?host=/run/postgresql&user=nexus").unwrap();
        assert_eq!(socket.host, Host::Socket("/run/postgresql/.s.PGSQL.5432".into()));
        let six = read("postgres://nexus@[::1]/").unwrap();
        assert_eq!((six.host, six.name.as_str()), (Host::Name("::1".into()), "nexus"));
        assert!(read("postgres://nexus@db.example/fleet?sslmode=disable").unwrap().tls.is_none());
    }

    #[test]
    fn what_is_unsafe_or_unknown_is_refused_and_no_password_is_shown() {
        for wrong in [
            "postgres://nexus:secret@db.example/fleet",
            "postgres://nexus:secret@db.example/fleet?sslrootcert=/nowhere",
            "postgres://nexus:secret@127.0.0.1/fleet?options=-c",
            "postgres://nexus:secret@127.0.0.1/fleet?sslmode=prefer",
            "postgres://127.0.0.1/fleet",
            "postgres:///fleet?user=nexus",
            "mysql://nexus:secret@127.0.0.1/fleet",
            "nexus:secret",
            "postgres://nexus:secret%00@127.0.0.1/fleet",
        ] {
            let error = read(wrong).unwrap_err();
            assert_eq!(error.code(), "store_settings", "{wrong}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        let debug = format!("{:?}", read("postgres://nexus:secret@127.0.0.1/fleet").unwrap());
        assert!(!debug.contains("secret"), "{debug}");
        assert!(Database::has_password("postgres://nexus:secret@127.0.0.1/fleet"));
        assert!(!Database::has_password("postgres://nexus@127.0.0.1/fleet"));
    }
}
