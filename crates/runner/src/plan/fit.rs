//! Refuses a workspace of which a layer would be wrong, before anything is made.

use crate::causes::chain;
use nexus_layer::disk::top_directory::{self, Unfit};
use nexus_layer::{IoFailure, Workspace};
use std::path::{Path, PathBuf};

/// A workspace cannot carry a layer.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The directory cannot be looked at.
    #[error("{} cannot be looked at: {}", workspace.display(), chain(source))]
    Unreadable {
        /// The path of the workspace.
        workspace: PathBuf,
        /// The answer of the system.
        source: IoFailure,
    },
    /// New files in it would get another group or access list in a layer than they get outside.
    #[error("{} cannot carry a layer: {unfit}", workspace.display())]
    Unfit {
        /// The path of the workspace.
        workspace: PathBuf,
        /// The reason for it.
        unfit: Unfit,
    },
}

impl FitError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        "workspace"
    }
}

/// Refuses a directory whose new files would get another group or access list in a layer than they get outside.
pub fn check_top(workspace: &Path, in_memory: bool) -> Result<(), FitError> {
    let found = Workspace::open(workspace).and_then(|opened| top_directory::unfit(&opened, in_memory));
    match found.map_err(|source| FitError::Unreadable { workspace: workspace.to_owned(), source })? {
        None => Ok(()),
        Some(unfit) => Err(FitError::Unfit { workspace: workspace.to_owned(), unfit }),
    }
}
