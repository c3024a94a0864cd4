//! Finds the state directory and makes its parts.

use crate::host::Host;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

/// The variable that names the state directory.
pub const VARIABLE: &str = "NEXUS_STATE_DIR";

/// Names the state directory and its parts.
#[derive(Debug, Clone)]
pub struct StateDir {
    /// The path of the variable, otherwise `/var/lib/nexus` for root, otherwise `$XDG_STATE_HOME/nexus`.
    pub state: PathBuf,
    /// Holds one file for each live run.
    pub runs: PathBuf,
    /// Holds one directory for each layer.
    pub layers: PathBuf,
    /// Holds one file for each workspace in which a commit is going on.
    pub locks: PathBuf,
    /// Holds directories of layers made ahead, and of runs that changed nothing.
    pub pool: PathBuf,
    /// True if all of it was there when it was looked for, so that these paths have been the real ones from the start.
    pub was_there: bool,
}

/// The state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The variable has a relative path.
    #[error("the state directory {} is not an absolute path", path.display())]
    Relative {
        /// The path of the variable.
        path: PathBuf,
    },
    /// The variable has a path with `..` in it.
    #[error("the state directory {} has .. in its path", path.display())]
    WithParent {
        /// The path of the variable.
        path: PathBuf,
    },
    /// Neither a variable nor a home directory says where state goes.
    #[error("there is no home directory to keep state in: HOME is not set, and /etc/passwd names none for this user")]
    NoHome,
    /// A call failed.
    #[error("the state directory {} cannot be used: {source}", path.display())]
    Unusable {
        /// The directory, or a part of it.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// Another user can write it.
    #[error("{} is not a directory that only you can write", path.display())]
    OpenToOthers {
        /// The directory, or a part of it.
        path: PathBuf,
    },
}

impl StateDirError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "state_dir"
    }

    fn unusable(path: &Path, source: io::Error) -> Self {
        Self::Unusable { path: path.to_owned(), source }
    }
}

impl StateDir {
    /// Finds the state directory. Makes nothing, so that a place that will be refused stays as it is.
    pub fn find(host: &Host) -> Result<Self, StateDirError> {
        let state = match host.variable(VARIABLE) {
            Some(directory) => PathBuf::from(directory),
            None if host.uid == 0 => PathBuf::from("/var/lib/nexus"),
            None => state_of_user(host)?,
        };
        if !state.is_absolute() {
            return Err(StateDirError::Relative { path: state });
        }
        if state.components().any(|part| part == Component::ParentDir) {
            return Err(StateDirError::WithParent { path: state });
        }
        let (state, was_there) = resolved(&state);
        Ok(Self { was_there, ..Self::below(state) })
    }

    /// Names the parts of a state directory.
    pub fn below(state: PathBuf) -> Self {
        Self {
            runs: state.join("runs"),
            layers: state.join("layers"),
            locks: state.join("locks"),
            pool: state.join("spare"),
            state,
            was_there: false,
        }
    }

    /// Makes the missing parts, closed to others, and refuses a part of another owner: a user who can write here can choose
    /// what is committed.
    pub fn ensure(self, host: &Host) -> Result<Self, StateDirError> {
        let mut was_there = self.was_there;
        for directory in [&self.state, &self.runs, &self.layers, &self.locks, &self.pool] {
            let failed = |error| StateDirError::unusable(directory, error);
            let mut meta = match std::fs::symlink_metadata(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    was_there = false;
                    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
                    made.and_then(|()| std::fs::symlink_metadata(directory)).map_err(failed)?
                }
                other => other.map_err(failed)?,
            };
            // The state directory itself may be a link that its owner made; what is in it may not.
            if directory == &self.state && meta.is_symlink() {
                was_there = false;
                meta = std::fs::metadata(directory).map_err(failed)?;
            }
            if !meta.is_dir() || meta.uid() != host.uid || meta.mode() & 0o022 != 0 {
                return Err(StateDirError::OpenToOthers { path: directory.clone() });
            }
        }
        if was_there {
            return Ok(self);
        }
        let real = std::fs::canonicalize(&self.state);
        real.map(Self::below).map_err(|error| StateDirError::unusable(&self.state, error))
    }
}

/// Returns the real path of what exists of it, with the rest as it is, and whether all of it exists.
fn resolved(path: &Path) -> (PathBuf, bool) {
    let found = path.ancestors().find_map(|parent| Some((std::fs::canonicalize(parent).ok()?, parent)));
    match found.and_then(|(real, parent)| Some((real, path.strip_prefix(parent).ok()?))) {
        Some((real, rest)) if rest.as_os_str().is_empty() => (real, true),
        Some((real, rest)) => (real.join(rest), false),
        None => (path.to_owned(), false),
    }
}

fn state_of_user(host: &Host) -> Result<PathBuf, StateDirError> {
    if let Some(directory) = host.variable("XDG_STATE_HOME") {
        return Ok(Path::new(directory).join("nexus"));
    }
    host.home.as_ref().map(|home| home.join(".local/state/nexus")).ok_or(StateDirError::NoHome)
}
