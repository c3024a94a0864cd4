//! Takes from this process what the engine does not read itself.

use crate::failure::Failure;
use nexus_runner::host::Host;
use nexus_runner::plan::workspace::{self, WorkspaceChoice};
use nexus_runner::state::directory::StateDir;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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

/// Takes the directory that was named for the workspace, or the current one.
pub fn choice(named: Option<&Path>) -> Result<WorkspaceChoice, Failure> {
    match named {
        Some(path) => Ok(WorkspaceChoice::Named(path.to_owned())),
        None => std::env::current_dir().map(WorkspaceChoice::Current).map_err(|error| {
            let message = format!("the current folder cannot be used: {error}");
            Failure::refused("workspace", message, "name one with --workspace")
        }),
    }
}

/// Finds the workspace: the directory that was named, or the current one.
pub fn workspace(named: Option<&Path>, places: &StateDir) -> Result<PathBuf, Failure> {
    Ok(workspace::find(choice(named)?, &here(), places)?)
}
