//! Where Nexus keeps its state.

use crate::failure::Failure;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The state directory and its parts.
#[derive(Debug, Clone)]
pub struct Places {
    /// `NEXUS_STATE_DIR`, else `/var/lib/nexus` for root, else `$XDG_STATE_HOME/nexus`.
    pub state: PathBuf,
    /// One file for each live run.
    pub runs: PathBuf,
    /// One folder for each layer.
    pub layers: PathBuf,
    /// One file for each workspace in which something is being committed.
    pub locks: PathBuf,
}

impl Places {
    /// Finds the state directory; makes nothing, so that a place that will be refused stays as it is.
    pub fn find() -> Result<Self, Failure> {
        let state = match std::env::var_os("NEXUS_STATE_DIR").filter(|value| !value.is_empty()) {
            Some(dir) => PathBuf::from(dir),
            None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/nexus"),
            None => user_state()?,
        };
        if !state.is_absolute() {
            let message = format!("the state directory {} is not an absolute path", state.display());
            return Err(Failure::refused("state_dir", message, "set NEXUS_STATE_DIR to an absolute path"));
        }
        if state.components().any(|part| part == Component::ParentDir) {
            let message = format!("the state directory {} has .. in its path", state.display());
            return Err(Failure::refused("state_dir", message, "set NEXUS_STATE_DIR to the whole path without .."));
        }
        let state = resolved(&state);
        Ok(Self { runs: state.join("runs"), layers: state.join("layers"), locks: state.join("locks"), state })
    }

    /// Makes what is missing, closed to others, and refuses what somebody else owns: who can write here can choose
    /// what is committed.
    pub fn ensure(self) -> Result<Self, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            let message = format!("the state directory {} cannot be used: {error}", path.display());
            Failure::refused("state_dir", message, "set NEXUS_STATE_DIR to a folder that you can write")
        };
        for dir in [&self.state, &self.runs, &self.layers, &self.locks] {
            let meta = match std::fs::symlink_metadata(dir) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
                    made.and_then(|()| std::fs::symlink_metadata(dir)).map_err(|error| failed(dir, error))?
                }
                other => other.map_err(|error| failed(dir, error))?,
            };
            // The state directory itself may be a link that its owner made; what is in it may not.
            let meta =
                if dir == &self.state { std::fs::metadata(dir).map_err(|error| failed(dir, error))? } else { meta };
            if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
                let message = format!("{} is not a folder that only you can write", dir.display());
                return Err(Failure::refused(
                    "state_dir",
                    message,
                    "set NEXUS_STATE_DIR to another folder, or chmod 700 it",
                ));
            }
        }
        let state = std::fs::canonicalize(&self.state).map_err(|error| failed(&self.state, error))?;
        Ok(Self { runs: state.join("runs"), layers: state.join("layers"), locks: state.join("locks"), state })
    }
}

/// The real path of what exists of it, and the rest as it is.
fn resolved(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|parent| Some((std::fs::canonicalize(parent).ok()?, parent)));
    match found.and_then(|(real, parent)| Some((real, path.strip_prefix(parent).ok()?))) {
        Some((real, rest)) if rest.as_os_str().is_empty() => real,
        Some((real, rest)) => real.join(rest),
        None => path.to_owned(),
    }
}

fn user_state() -> Result<PathBuf, Failure> {
    if let Some(dir) = std::env::var_os("XDG_STATE_HOME").filter(|value| !value.is_empty()) {
        return Ok(Path::new(&dir).join("nexus"));
    }
    home().map(|home| home.join(".local/state/nexus")).ok_or_else(|| {
        let message = "there is no home folder to keep state in";
        Failure::refused("state_dir", message, "set NEXUS_STATE_DIR to a folder that you can write")
    })
}

/// The caller's home folder.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}
