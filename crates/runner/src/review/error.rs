//! Names what keeps a command from deciding about the changes of a run.

use crate::causes::chain;
use crate::plan::protect::ProtectError;
use crate::recover::interrupted::Direction;
use crate::settle::problem::INTERRUPTED;
use crate::state::identity::OpenSameError;
use nexus_layer::CommitError;
use std::io;
use std::path::PathBuf;

/// Error: nothing was decided about the changes of a run.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// A directory of the state directory cannot be used.
    #[error("{}: {source}", path.display())]
    StateDir {
        /// The path of the directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The layer cannot be read.
    #[error("{why}")]
    Layer {
        /// The error of the layer.
        why: String,
    },
    /// The layer cannot be copied from a process that may write to it.
    #[error("{why}")]
    NoRoomToRead {
        /// The error of the layer.
        why: String,
    },
    /// The commit of the run was interrupted.
    #[error("the commit of the run {run} was interrupted")]
    Interrupted {
        /// The run of the commit.
        run: String,
        /// True if the commit was being taken back.
        is_back: bool,
    },
    /// There was no room to park the changes.
    #[error("the changes of the run {run} are not parked, because the disk is full")]
    Unparked {
        /// The run whose changes they are.
        run: String,
    },
    /// Another command decides about the changes at this moment.
    #[error("another command is at work on the changes of the run {run}")]
    Busy {
        /// The run whose changes they are.
        run: String,
    },
    /// The changes were being removed.
    #[error("the changes of the run {run} were being thrown away")]
    Going {
        /// The run whose changes they are.
        run: String,
    },
    /// The directory is not the one that the run worked on: the changes belong to that one, and to no other that took its
    /// name.
    #[error("the directory {} of the run {run} cannot take its changes: {why}. What the run wrote is in {}",
        workspace.display(), files.display())]
    Moved {
        /// The run whose changes they are.
        run: String,
        /// The path of the directory.
        workspace: PathBuf,
        /// The reason why the directory is not the one.
        why: OpenSameError,
        /// The directory with what the run wrote.
        files: PathBuf,
    },
    /// The protected names cannot be found out.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// The list of rejected paths cannot be used.
    #[error("the list of rejected paths cannot be used: {source}")]
    Rejected {
        /// The error of the system.
        source: io::Error,
    },
    /// The workspace cannot be prepared for a commit.
    #[error("{why}")]
    Lock {
        /// The error of the step.
        why: String,
    },
    /// The decision cannot be recorded.
    #[error("the accept cannot be recorded in {}: {why}", runs.display())]
    Record {
        /// The directory of the records.
        runs: PathBuf,
        /// The error of the record.
        why: String,
    },
    /// The layer cannot be removed.
    #[error("{why}")]
    Discard {
        /// The error of the removal.
        why: String,
    },
    /// The commit failed.
    #[error("{}", chain(source))]
    Commit {
        /// The run of the commit.
        run: String,
        /// The way in which a commit that stopped half-way can end.
        ending: Direction,
        /// The error of the commit.
        source: CommitError,
    },
    /// A copy of a file that is still at its place cannot be removed.
    #[error("{why}")]
    CopyStays {
        /// The path of the copy.
        copy: PathBuf,
        /// The error of the removal.
        why: String,
    },
}

impl ReviewError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::StateDir { .. } | Self::Record { .. } => "state_dir",
            Self::Layer { .. } | Self::NoRoomToRead { .. } => "layer",
            Self::Interrupted { .. } => "interrupted",
            Self::Unparked { .. } => "no_room",
            Self::Busy { .. } => "busy",
            Self::Going { .. } => "going",
            Self::Moved { .. } => "moved",
            Self::Protect(error) => error.code(),
            Self::Rejected { .. } => "rejected",
            Self::Lock { .. } => "lock",
            Self::Discard { .. } => "discard",
            Self::Commit { source: CommitError::Interrupted { .. }, .. } => INTERRUPTED,
            Self::Commit { .. } | Self::CopyStays { .. } => "commit",
        }
    }
}
