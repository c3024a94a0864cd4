//! Shows the changes of a layer for a review: one diff in git's format, and its parts to accept one by one.
//!
//! ```text
//!  LayerTree ──views──▶ old, new files ──pair──▶ pairs ──build (read, lines)──▶ Diff ──render──▶ bytes for `git apply`
//!                                                                               └─▶ apply_hunks, Layer::accept_hunks
//! ```
//!
//! * Pure: [`model`], `pair`, [`lines`], `applies`, [`quote`], [`render`](mod@render), `cap`, [`hunks`].
//! * I/O: `views` (lists directories that move or go away), `read` (contents), `build`, [`accept`].
//!
//! A diff shows bytes that a hostile process chose, in a file that a user will apply. So: names are quoted (a newline
//! in a name must not become a line of the diff), what git would refuse is shown as a remark and never as a patch,
//! every content is read below a descriptor and only from regular files, and time and memory have bounds.

pub mod accept;
mod applies;
mod build;
mod cap;
pub mod hunks;
pub mod lines;
pub mod model;
mod pair;
pub mod quote;
mod read;
pub mod render;
pub(crate) mod views;

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::commit::recover::open_index;
use crate::layer::{Layer, ReadLayerError};
use crate::protected::Rules;
use crate::upper::{open_upper, reopen_upper};
use std::time::{Duration, Instant};

pub use accept::{AcceptError, Choice};
pub use hunks::{ApplyError, apply_hunks};
pub use model::{Blob, Content, Diff, DiffKind, FileDiff, Hunk, Line, LineTag};
pub use render::{Binary, RenderOptions, Rendered};

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

impl Layer {
    /// Compares the layer with the workspace, file by file. `rules.only` narrows it. Changes nothing.
    ///
    /// The files of a directory that was added, removed or renamed are listed one by one.
    pub fn diff(&self, workspace: &Workspace, rules: &Rules, options: &DiffOptions) -> Result<Diff, DiffError> {
        let Some(tree) = self.read(workspace, rules)? else { return Ok(Diff::default()) };
        let trees = self.trees(workspace)?;
        let views = views::gather(&tree, workspace, rules, options.max_files)?;
        let incomplete = views.incomplete;
        let pairs = pair::pair(views, |path| rules.is_chosen(path));
        let deadline = Instant::now().checked_add(options.total_time);
        let mut files = build::build(&trees, options, deadline, pairs)?;
        applies::mark(&mut files);
        Ok(Diff { files, incomplete })
    }

    pub(crate) fn trees<'a>(&self, base: &'a Workspace) -> Result<Trees<'a>, IoFailure> {
        if let Some(upper) = &self.upper_fd {
            let index = self.memory_index(upper)?;
            let upper = reopen_upper(upper).doing("open", b"upper")?;
            return Ok(Trees { base, upper: Workspace::from_fd(upper), index });
        }
        let upper = open_upper(&self.root).doing("open", b"upper")?;
        Ok(Trees { base, upper: Workspace::from_fd(upper), index: open_index(&self.root)? })
    }
}
