//! Kinds of facilities, and the addresses from which a repository may be cloned.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Kind of a facility.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// The workspace begins without files.
    Empty,
    /// The workspace is cloned from a repository before its first directive.
    Repo {
        /// Address of the repository.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repo_url: Option<RepoUrl>,
    },
}

/// Reason for which a kind of facility is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// Directories of the host need an approval, which this version does not have.
    #[error(
        "a facility of the kind imported_path is refused: it would show a directory of the host, which needs an approval"
    )]
    Imported,
    /// The kind is not known.
    #[error("{kind:?} is not a kind of facility; the kinds are empty and repo")]
    Unknown {
        /// The word, cut to a bounded length.
        kind: String,
    },
    /// Only a repository has an address.
    #[error("a facility of the kind empty has no repository; the kind repo has one")]
    NotARepo,
    /// The address is refused.
    #[error("the repository address is refused: {reason}")]
    Url {
        /// The rule that the address breaks. The address itself may hold a password and is not shown.
        reason: &'static str,
    },
}

impl KindError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Imported => "imported_path",
            Self::Unknown { .. } | Self::NotARepo => "facility_kind",
            Self::Url { .. } => "repo_url",
        }
    }
}

impl Kind {
    /// Reads the kind from its word and the address of its repository.
    pub fn read(kind: &str, repo_url: Option<&str>) -> Result<Self, KindError> {
        match (kind, repo_url) {
            ("empty", None) => Ok(Self::Empty),
            ("empty", Some(_)) => Err(KindError::NotARepo),
            ("repo", url) => Ok(Self::Repo { repo_url: url.map(RepoUrl::parse).transpose()? }),
            ("imported_path", _) => Err(KindError::Imported),
            (other, _) => Err(KindError::Unknown { kind: other.chars().take(40).collect() }),
        }
    }

    /// Returns the word for the kind.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Repo { .. } => "repo",
        }
    }

    /// Returns the address of its repository.
    #[must_use]
    pub fn repo_url(&self) -> Option<&RepoUrl> {
        match self {
            Self::Empty => None,
            Self::Repo { repo_url } => repo_url.as_ref(),
        }
    }
}

/// Address of a repository: `https://HOST[:PORT]/PATH` without a user, a password, a query or a fragment. The host is a DNS name,
/// so that the directive's own network rules decide about it.
///
/// Every other form lets git run a program or read the host (`ext::`, `file:`, a path), or is taken for an option
/// (CVE-2017-1000117, CVE-2018-17456).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RepoUrl(String);

/// Longest address, in bytes.
const MAX_URL: usize = 2048;

impl RepoUrl {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, KindError> {
        let refused = |reason| Err(KindError::Url { reason });
        if text.len() > MAX_URL {
            return refused("it is longer than 2048 bytes");
        }
        let Some(rest) = text.strip_prefix("https://") else { return refused("it does not begin with https://") };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refused("it holds a space, a control character or a letter outside ASCII");
        }
        if text.contains(['?', '#', '\\', '"', '\'', '<', '>', '`', '|', '{', '}', '^']) {
            return refused("it holds a query, a fragment or a character that no address has");
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return refused("it holds a user or a password");
        }
        let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
        if port.is_some_and(|port| {
            port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) || port.parse::<u16>().unwrap_or(0) == 0
        }) {
            return refused("its port is not a number from 1 to 65535");
        }
        if !is_dns_name(host) {
            return refused("its host is not a DNS name");
        }
        if path.is_empty() || path.split('/').any(|part| part == "..") {
            return refused("its path is empty or holds ..");
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the text of the address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_dns_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let last_is_a_name =
        host.rsplit('.').next().is_some_and(|last| last.bytes().any(|byte| byte.is_ascii_alphabetic()));
    host.len() <= 253 && host.contains('.') && host.split('.').all(is_label) && last_is_a_name
}

impl TryFrom<String> for RepoUrl {
    type Error = KindError;

    fn try_from(text: String) -> Result<Self, KindError> {
        Self::parse(&text)
    }
}

impl From<RepoUrl> for String {
    fn from(url: RepoUrl) -> Self {
        url.0
    }
}

impl fmt::Display for RepoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_cloned_over_https_from_a_name_only() {
        for good in ["https://example.test/a/b.git", "https://git.example.test:8443/x"] {
            assert_eq!(RepoUrl::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "file:///etc",
            "/etc",
            "../x",
            "ext::sh -c id",
            "fd::3",
            "ssh://-oProxyCommand=id/x",
            "-u./id",
            "--upload-pack=id",
            "git://example.test/x",
            "http://example.test/x",
            "https://127.0.0.1/x",
            "https://[::1]/x",
            "https://user:pw@example.test/x",
            "https://example.test/x y",
            "https://example.test/x\n",
            "https://example.test",
            "https://example.test/",
            "https://localhost/x",
            "https://example.test:0/x",
            "https://example.test/a/../b",
            "https://example.test/x?y",
            "HTTPS://example.test/x",
        ] {
            assert!(RepoUrl::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_imported_path_is_refused_and_the_other_kinds_are_read() {
        assert_eq!(Kind::read("imported_path", None), Err(KindError::Imported));
        assert_eq!(Kind::read("imported_path", None).unwrap_err().code(), "imported_path");
        assert_eq!(Kind::read("empty", None), Ok(Kind::Empty));
        assert_eq!(Kind::read("empty", Some("https://example.test/x")), Err(KindError::NotARepo));
        assert_eq!(Kind::read("repo", None), Ok(Kind::Repo { repo_url: None }));
        assert!(Kind::read("repo", Some("/etc")).is_err() && Kind::read("other", None).is_err());
    }
}
