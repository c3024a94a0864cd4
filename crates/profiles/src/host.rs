//! The environment of the calling process, as the caller passes it in. This crate reads nothing of the process on its
//! own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Variables, home and identity of the caller. Without `Debug`: variables hold credentials, and none shall reach a
/// message.
#[derive(Clone)]
pub struct Host {
    /// Variables of the environment.
    pub variables: BTreeMap<OsString, OsString>,
    /// The home directory, when it is an absolute path.
    pub home: Option<PathBuf>,
    /// The effective user id.
    pub uid: u32,
    /// Reads a configuration file of git.
    pub git: ReadGitConfig,
}

/// Reads the settings out of the text of a git configuration.
pub type ReadGitConfig = fn(&[u8]) -> Result<Vec<GitSetting>, UnreadableGitConfig>;

/// A setting of a git configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSetting {
    /// The section, in small letters.
    pub section: String,
    /// The subsection as written.
    pub subsection: Option<Vec<u8>>,
    /// The name, in small letters.
    pub name: String,
    /// The value; a name alone has none.
    pub value: Option<Vec<u8>>,
}

/// Error of a git configuration that cannot be read and may hold anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct UnreadableGitConfig {
    /// Reason, for people.
    pub why: String,
}

impl Host {
    /// Returns a variable; an empty value counts as missing.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn git(text: &[u8]) -> Result<Vec<GitSetting>, UnreadableGitConfig> {
        let settings =
            nexus_git::config::parse(text).map_err(|error| UnreadableGitConfig { why: error.to_string() })?;
        let of = |setting: nexus_git::config::Setting| GitSetting {
            section: setting.section,
            subsection: setting.subsection,
            name: setting.name,
            value: setting.value,
        };
        Ok(settings.into_iter().map(of).collect())
    }

    /// Returns a host for the user who runs the tests, without variables and home.
    pub fn host() -> Host {
        Host { variables: BTreeMap::new(), home: None, uid: rustix::process::geteuid().as_raw(), git }
    }
}
