//! Bounds of a diff, its errors, and the trees that it compares.

use crate::beneath::{IoFailure, Workspace};
use crate::store::layer::ReadLayerError;
use std::time::Duration;

/// Bounds of a diff. The defaults suit a review by people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffOptions {
    /// Unchanged lines around each change; `git apply` wants at least one.
    pub context: usize,
    /// A larger file (bytes) is shown by size and hash.
    pub max_text: u64,
    /// Once this much text (bytes) was read, further files are shown by size and hash.
    pub max_text_total: u64,
    /// So are files with more lines than this; a line costs more memory than its bytes.
    pub max_lines: usize,
    /// And further files once so many lines were read.
    pub max_lines_total: usize,
    /// A larger file (bytes) is shown by size alone.
    pub max_hash: u64,
    /// More files than this are not listed, and the diff says so.
    pub max_files: usize,
    /// The time for one file's lines; after it the file is shown as replaced.
    pub file_time: Duration,
    /// The time for all files; after it lines are no longer compared and nothing more is hashed.
    pub total_time: Duration,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            context: 3,
            max_text: 8 << 20,
            max_text_total: 64 << 20,
            max_lines: 200_000,
            max_lines_total: 1_000_000,
            max_hash: 1 << 30,
            max_files: 100_000,
            file_time: Duration::from_secs(2),
            total_time: Duration::from_secs(20),
        }
    }
}

/// Reason for which there is no diff. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// The layer cannot be read.
    #[error(transparent)]
    Read(#[from] ReadLayerError),
    /// A call on the layer or the workspace failed; the workspace may be changing.
    #[error("cannot compare the layer with the workspace")]
    Io {
        /// The call that failed.
        source: IoFailure,
    },
}

impl From<IoFailure> for DiffError {
    fn from(source: IoFailure) -> Self {
        Self::Io { source }
    }
}

/// The trees that contents are read from.
pub(crate) struct Trees<'a> {
    pub(crate) base: &'a Workspace,
    pub(crate) upper: Workspace,
    pub(crate) index: Option<Workspace>,
}
