//! Takes from this process what the engine does not read by itself, and gives its refusals their advice.

use crate::failure::Failure;
use nexus_runner::host::Host;
use nexus_runner::state::directory::{StateDir, StateDirError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Takes variables, home and identity from this process.
pub fn here() -> Host {
    let mut variables = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        // Of two with one name the first counts, as for getenv(3).
        variables.entry(name).or_insert(value);
    }
    Host { variables, home: home(), uid: rustix::process::geteuid().as_raw() }
}

/// Returns the caller's home directory.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}

/// Finds the state directory and makes nothing.
pub fn state_dir() -> Result<StateDir, Failure> {
    Ok(StateDir::find(&here())?)
}

/// Finds the state directory and makes its missing parts.
pub fn ready_state_dir() -> Result<StateDir, Failure> {
    let host = here();
    Ok(StateDir::find(&host)?.ensure(&host)?)
}

impl From<StateDirError> for Failure {
    fn from(error: StateDirError) -> Self {
        let hint = match &error {
            StateDirError::Relative { .. } => "set NEXUS_STATE_DIR to an absolute path",
            StateDirError::WithParent { .. } => "set NEXUS_STATE_DIR to the whole path without ..",
            StateDirError::NoHome | StateDirError::Unusable { .. } => {
                "set NEXUS_STATE_DIR to a folder that you can write"
            }
            StateDirError::OpenToOthers { .. } => "set NEXUS_STATE_DIR to another directory, or chmod 700 it",
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}
