//! The needs of a package manager, and the rules that cover them.

use super::endpoint::{Credential, Endpoint, EndpointError, Scheme};
use crate::net::rules::host_port::{is_loopback, private_flag};
use crate::net::rules::pattern::Pattern;
use crate::net::rules::ports::Ports;
use crate::net::rules::rule::{Origin, Rule, Source};
use crate::net::rules::target::{Host, Target};
use std::collections::BTreeSet;

/// A package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Client {
    /// pip and what reads its configuration.
    Pip,
    /// npm and what reads its configuration.
    Npm,
    /// The client cargo.
    Cargo,
    /// The client apt.
    Apt,
}

impl Client {
    /// Returns the name of the client's group.
    pub fn group(self) -> &'static str {
        match self {
            Self::Pip => "pkg:pip",
            Self::Npm => "pkg:npm",
            Self::Cargo => "pkg:cargo",
            Self::Apt => "pkg:apt",
        }
    }
}

/// Source of the packages for which no setting gives one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultIndex {
    /// From the client's own default, which [`Needs::add_default`] adds.
    #[default]
    Ask,
    /// A setting replaces it, or forbids any, or it is already added.
    Settled,
}

/// A setting that the client needs inside too, without credentials.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Setting {
    /// The key as the client spells it.
    pub key: String,
    /// The value of the setting.
    pub value: String,
}

/// Endpoints, settings and logins that a client needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// The endpoints that it connects to for packages.
    pub endpoints: BTreeSet<Endpoint>,
    /// The use of its built-in default besides.
    pub default_index: DefaultIndex,
    /// Proxies that it uses on the host: either the egress goes through them, or they are not used inside.
    pub proxies: BTreeSet<Endpoint>,
    /// Files with certificates that it trusts; to be shown inside, read-only.
    pub ca_files: BTreeSet<String>,
    /// Settings to repeat inside.
    pub settings: BTreeSet<Setting>,
    /// Logins that were found; they stay outside.
    pub credentials: Vec<Credential>,
}

/// Reason why a client's configuration is not understood. It never holds a value, which might be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackagesError {
    /// A setting does not hold a usable URL.
    #[error("the setting {key} is not a usable address: {why}")]
    Endpoint {
        /// The key of the setting.
        key: String,
        /// The reason, without the URL.
        #[source]
        why: EndpointError,
    },
    /// A line that the client would not read either.
    #[error("line {line} cannot be read: {why}")]
    Line {
        /// The number of the line, from 1.
        line: usize,
        /// The reason why the line is refused.
        why: &'static str,
    },
    /// TOML or JSON; the message of the parser would quote the text.
    #[error("the text is not a valid {form}")]
    Form {
        /// The name of the format, TOML or JSON.
        form: &'static str,
    },
    /// A setting of another type than it has.
    #[error("the setting {key} is not a {wanted}")]
    Type {
        /// The key of the setting.
        key: String,
        /// The type that the setting should have.
        wanted: &'static str,
    },
    /// A chain of replacements that leads nowhere or in a circle.
    #[error("the source {name} is replaced by one that does not exist, or in a circle")]
    Replacement {
        /// The name of the source.
        name: String,
    },
}

/// Endpoint that the rules of a group cannot cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCovered {
    /// The endpoint that the rules leave out.
    pub endpoint: Endpoint,
    /// The flag to give besides the group.
    pub flag: String,
}

impl Needs {
    /// Returns the rules of the group. A group opens no addresses: a mirror that is given as one needs its own flag.
    pub fn rules(&self, client: Client) -> (Vec<Rule>, Vec<NotCovered>) {
        let (mut rules, mut left) = (Vec::new(), Vec::new());
        for endpoint in &self.endpoints {
            let Target { host, port } = &endpoint.target;
            match host {
                // Inside, localhost is the sandbox.
                Host::Name(name) if !is_loopback(host) => rules.push(Rule {
                    pattern: Pattern::Exact(name.clone()),
                    ports: Ports::one(*port),
                    private: false,
                    tls: Some(endpoint.scheme == Scheme::Https),
                    program: None,
                    source: Source {
                        origin: Origin::Group,
                        text: client.group().into(),
                        file: Some(endpoint.setting.clone()),
                        line: None,
                    },
                }),
                Host::Name(_) | Host::Address(_) => {
                    let flag = private_flag(&endpoint.target).unwrap_or_else(|| "no flag does".to_owned());
                    left.push(NotCovered { endpoint: endpoint.clone(), flag });
                }
            }
        }
        (rules, left)
    }

    /// Takes the client's built-in default: one URL or host per line.
    pub fn add_default(&mut self, answer: &str) -> Result<(), PackagesError> {
        let mut found = Vec::new();
        for line in answer.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let url = if line.contains("://") { line.to_string() } else { format!("https://{line}/") };
            found.push(self.endpoint("default", &url)?);
        }
        if found.is_empty() {
            return Err(PackagesError::Type { key: "default".into(), wanted: "URL or host" });
        }
        self.endpoints.extend(found);
        self.default_index = DefaultIndex::Settled;
        Ok(())
    }

    /// Reads a URL and keeps its login apart.
    pub(super) fn endpoint(&mut self, key: &str, url: &str) -> Result<Endpoint, PackagesError> {
        let (endpoint, login) =
            Endpoint::parse(key, url).map_err(|why| PackagesError::Endpoint { key: key.into(), why })?;
        if let Some(login) = login {
            let credential = Credential { target: endpoint.target.clone(), path: endpoint.path.clone(), login };
            if !self.credentials.contains(&credential) {
                self.credentials.push(credential);
            }
        }
        Ok(endpoint)
    }

    /// Adds an endpoint for packages, repeated inside under `key`.
    pub(super) fn index(&mut self, key: &str, url: &str) -> Result<(), PackagesError> {
        let endpoint = self.endpoint(key, url)?;
        self.settings.insert(Setting { key: key.into(), value: endpoint.url() });
        self.endpoints.insert(endpoint);
        Ok(())
    }

    pub(super) fn proxy(&mut self, key: &str, url: &str) -> Result<(), PackagesError> {
        // Clients take `host:port` for a proxy too.
        let url = if url.contains("://") { url.to_string() } else { format!("http://{url}") };
        let endpoint = self.endpoint(key, &url)?;
        self.proxies.insert(endpoint);
        Ok(())
    }

    pub(super) fn ca_file(&mut self, key: &str, path: &str) {
        self.ca_files.insert(path.into());
        self.settings.insert(Setting { key: key.into(), value: path.into() });
    }
}
