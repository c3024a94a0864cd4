//! Opens the workspace of a run, beside its state directory.

use crate::causes::chain;
use crate::host::Host;
use crate::plan::workspace::{self, WorkspaceChoice, WorkspaceError};
use crate::state::directory::{StateDir, StateDirError};
use crate::state::identity::{self, DirectoryId};
use nexus_layer::{DirectoryIdentity, IoFailure, Workspace};
use std::io;
use std::path::PathBuf;

/// The workspace of a run and the state directory.
pub struct Site {
    /// The state directory, with all its parts.
    pub places: StateDir,
    /// The real path of the workspace.
    pub workspace: PathBuf,
    /// The workspace, opened once: a run commits through this descriptor and through no path.
    pub directory: Workspace,
    /// The identity of that descriptor, for journals.
    pub id: DirectoryIdentity,
    /// The identity of that descriptor, for records.
    pub identity: DirectoryId,
}

/// The workspace or the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// The directory cannot be a workspace.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    /// The workspace cannot be opened.
    #[error("the workspace {} cannot be used: {}", path.display(), chain(source))]
    Unopened {
        /// The path of the workspace.
        path: PathBuf,
        /// The answer of the system.
        source: IoFailure,
    },
    /// The workspace cannot be identified.
    #[error("the workspace {} cannot be used: {source}", path.display())]
    Unidentified {
        /// The path of the workspace.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
}

impl SiteError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(inner) => inner.code(),
            Self::Workspace(inner) => inner.code(),
            Self::Unopened { .. } | Self::Unidentified { .. } => "workspace",
        }
    }
}

impl Site {
    /// Finds and opens the workspace, and makes the missing parts of the state directory.
    pub fn open(choice: WorkspaceChoice, host: &Host) -> Result<Self, SiteError> {
        let places = StateDir::find(host)?;
        let path = workspace::find(choice, host, &places)?;
        let places = places.ensure(host)?;
        if !places.was_there {
            // Again, now that the state directory exists: what was looked at before might have been a link's parent.
            workspace::check(&path, host, &places)?;
        }
        let directory = identity::open(&path).map_err(|source| SiteError::Unopened { path: path.clone(), source })?;
        let id = directory.identity().map_err(|source| SiteError::Unidentified { path: path.clone(), source })?;
        Ok(Self { places, workspace: path, directory, id, identity: id.into() })
    }
}
