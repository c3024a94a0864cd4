//! The facts about the calling process that the engine needs: variables, home directory, identity.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Holds the variables, the home and the identity of the caller. It has no `Debug`: variables hold credentials, and none shall
/// reach a message.
#[derive(Clone)]
pub struct Host {
    /// Holds the variables of the environment.
    pub variables: BTreeMap<OsString, OsString>,
    /// Names the home directory, when its path is absolute.
    pub home: Option<PathBuf>,
    /// Identifies the effective user.
    pub uid: u32,
}

impl Host {
    /// Returns a variable; an empty one counts as missing.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }
}
