//! Errors of the start of a daemon.

use nexus_facility::StoreError;
use nexus_runner::state::directory::StateDirError;
use std::io;

/// The daemon cannot start. Nothing was claimed.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// The facilities cannot be used.
    #[error(transparent)]
    Facilities(#[from] StoreError),
    /// The work of an earlier daemon cannot be cleared up.
    #[error("what an earlier daemon left cannot be recovered: {why}")]
    Recovery {
        /// The cause, for a person to read.
        why: String,
    },
    /// The notes about claims cannot be used.
    #[error("the notes about claims cannot be used: {0}")]
    Claims(io::Error),
    /// A thread cannot be started.
    #[error("a thread of the daemon cannot be started: {0}")]
    Thread(io::Error),
}

impl DaemonError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::Facilities(error) => error.code(),
            Self::Recovery { .. } => "recover",
            Self::Claims(_) => "claims",
            Self::Thread(_) => "thread",
        }
    }
}
