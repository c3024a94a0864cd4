//! The error type of kept trees.

use crate::object::ObjectId;
use nexus_beneath::IoFailure;
use std::io;

/// Reason for which a tree cannot be kept, or a kept tree cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A call on an entry of the tree failed.
    #[error("{}: {}", .0, .0.source)]
    Tree(#[from] IoFailure),
    /// An entry kept changing while it was read.
    #[error("{path:?} is being written: it changed each time that it was read")]
    Changing {
        /// Its path below the tree.
        path: String,
    },
    /// A file of the store cannot be used.
    #[error("the file {pack} of the store is damaged: {why}")]
    Damaged {
        /// Name of the file.
        pack: String,
        /// The fault that was found.
        why: &'static str,
    },
    /// The store does not have an object.
    #[error("the store does not have the object {id}{}", damaged.as_ref().map(|pack| format!("; the file {pack} of the store is damaged")).unwrap_or_default())]
    Missing {
        /// Name of the object.
        id: ObjectId,
        /// The first pack that could not be read.
        damaged: Option<String>,
    },
    /// An object has bytes that no version writes.
    #[error("the object {id} has another form than expected")]
    Form {
        /// Name of the object.
        id: ObjectId,
    },
    /// A newer program made the store.
    #[error("the store was made by a newer version of Nexus: update this one")]
    Newer,
    /// Another process holds the lock of the store.
    #[error("{}", if *is_gc { "the store is being cleaned up" } else { "another process works with the store" })]
    Busy {
        /// True if the other process removes objects, false if it reads or adds them.
        is_gc: bool,
    },
    /// A file is larger than what one list of pieces holds.
    #[error("the file {path:?} is larger than {most} bytes")]
    TooLarge {
        /// Its path below the tree.
        path: String,
        /// The largest size of a file, in bytes.
        most: u64,
    },
    /// A tree has more new files or bytes than the caller allows.
    #[error(
        "at {path:?} there are more than {files} new or changed files, more than {bytes} bytes in them, or more than {apparent} with their holes"
    )]
    TooMuch {
        /// The file with which they are too many, below the tree.
        path: String,
        /// The most files.
        files: u64,
        /// The most bytes.
        bytes: u64,
        /// The most bytes with those of holes.
        apparent: u64,
    },
    /// The caller asked for an end.
    #[error("it was stopped by a signal")]
    Stopped,
    /// A call on the store failed.
    #[error("the store cannot be used: {0}")]
    Store(#[from] io::Error),
}

impl From<rustix::io::Errno> for SnapshotError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Store(error.into())
    }
}

impl SnapshotError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Tree(_) => "snapshot_tree",
            Self::Changing { .. } => "snapshot_changing",
            Self::Damaged { .. } | Self::Missing { .. } | Self::Form { .. } => "snapshot_damaged",
            Self::Newer => "snapshot_newer",
            Self::Busy { .. } => "snapshot_busy",
            Self::TooLarge { .. } => "snapshot_too_large",
            Self::TooMuch { .. } => "snapshot_too_much",
            Self::Stopped => "snapshot_stopped",
            Self::Store(_) => "snapshot_store",
        }
    }
}
