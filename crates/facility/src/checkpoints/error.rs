//! The error type of checkpoints.

use nexus_model::RunId;
use nexus_snapshot::SnapshotError;
use std::io;

/// A state of a workspace cannot be taken or used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The store of objects, or the workspace, cannot be used.
    #[error(transparent)]
    Objects(#[from] SnapshotError),
    /// No record of the run is kept.
    #[error("no checkpoint of the run {run} is kept")]
    Unknown {
        /// Id of the run.
        run: RunId,
    },
    /// The run has no such state.
    #[error("the run {run} has no state {which:?}")]
    NoState {
        /// Id of the run.
        run: RunId,
        /// The words of the caller.
        which: String,
    },
    /// No state of the end of the run is kept, and the time of its end is not known.
    #[error(
        "no state of the end of the run {run} is kept, nor the time of it: a change since then looks like one of the run"
    )]
    EndUnknown {
        /// Id of the run.
        run: RunId,
    },
    /// No state of the end of the run is kept, and very much was changed since.
    #[error(
        "no state of the end of the run {run} is kept, and too many entries were changed since to go around each of them"
    )]
    ManyChanged {
        /// Id of the run.
        run: RunId,
    },
    /// The run changed nothing at a path that was named.
    #[error("{path:?} has nothing to undo")]
    Unchanged {
        /// Path that was named.
        path: String,
    },
    /// A file of the records cannot be used.
    #[error("the file {file} of the checkpoints is damaged: {why}")]
    Damaged {
        /// Name of the file.
        file: String,
        /// The fault that was found.
        why: String,
    },
    /// A newer program wrote the file.
    #[error("the file {file} of the checkpoints was made by a newer version of Nexus: update this one")]
    Newer {
        /// Name of the file.
        file: String,
    },
    /// A call failed.
    #[error("the checkpoints cannot be used: {0}")]
    Io(#[from] io::Error),
}

impl CheckpointError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Objects(error) => error.code(),
            Self::Unknown { .. } => "checkpoint_unknown",
            Self::NoState { .. } => "checkpoint_state",
            Self::EndUnknown { .. } | Self::ManyChanged { .. } => "checkpoint_end",
            Self::Unchanged { .. } => "unchanged",
            Self::Damaged { .. } => "checkpoint_damaged",
            Self::Newer { .. } => "checkpoint_newer",
            Self::Io(_) => "checkpoint_store",
        }
    }
}
