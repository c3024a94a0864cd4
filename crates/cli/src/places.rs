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
    /// Folders of layers made ahead, and of runs that changed nothing.
    pub spare: PathBuf,
    /// Whether all of it was there when it was looked for, so that these paths have been the real ones from the start.
    pub was_there: bool,
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
        let (state, was_there) = resolved(&state);
        Ok(Self { was_there, ..Self::below(state) })
    }

    /// The parts of a state directory.
    pub fn below(state: PathBuf) -> Self {
        Self {
            runs: state.join("runs"),
            layers: state.join("layers"),
            locks: state.join("locks"),
            spare: state.join("spare"),
            state,
            was_there: false,
        }
    }

    /// Makes what is missing, closed to others, and refuses what somebody else owns: who can write here can choose
    /// what is committed.
    pub fn ensure(self) -> Result<Self, Failure> {
        let failed = |path: &Path, error: std::io::Error| {
            let message = format!("the state directory {} cannot be used: {error}", path.display());
            Failure::refused("state_dir", message, "set NEXUS_STATE_DIR to a folder that you can write")
        };
        let own = rustix::process::geteuid().as_raw();
        let mut was_there = self.was_there;
        for dir in [&self.state, &self.runs, &self.layers, &self.locks, &self.spare] {
            let mut meta = match std::fs::symlink_metadata(dir) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    was_there = false;
                    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
                    made.and_then(|()| std::fs::symlink_metadata(dir)).map_err(|error| failed(dir, error))?
                }
                other => other.map_err(|error| failed(dir, error))?,
            };
            // The state directory itself may be a link that its owner made; what is in it may not.
            if dir == &self.state && meta.is_symlink() {
                was_there = false;
                meta = std::fs::metadata(dir).map_err(|error| failed(dir, error))?;
            }
            if !meta.is_dir() || meta.uid() != own || meta.mode() & 0o022 != 0 {
                let message = format!("{} is not a folder that only you can write", dir.display());
                return Err(Failure::refused(
                    "state_dir",
                    message,
                    "set NEXUS_STATE_DIR to another directory, or chmod 700 it",
                ));
            }
        }
        if was_there {
            return Ok(self);
        }
        std::fs::canonicalize(&self.state).map(Self::below).map_err(|error| failed(&self.state, error))
    }
}

/// The real path of what exists of it, and the rest as it is; whether all of it exists.
fn resolved(path: &Path) -> (PathBuf, bool) {
    let found = path.ancestors().find_map(|parent| Some((std::fs::canonicalize(parent).ok()?, parent)));
    match found.and_then(|(real, parent)| Some((real, path.strip_prefix(parent).ok()?))) {
        Some((real, rest)) if rest.as_os_str().is_empty() => (real, true),
        Some((real, rest)) => (real.join(rest), false),
        None => (path.to_owned(), false),
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
