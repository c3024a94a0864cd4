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
pub mod applies;
mod build;
mod cap;
pub mod hunks;
pub mod lines;
pub mod model;
pub mod options;
mod pair;
pub mod quote;
mod read;
pub mod render;
pub(crate) mod views;

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::disk::upper::{open_index, open_upper, reopen_upper};
use crate::entries::protected::Rules;
use crate::store::layer::Layer;
pub(crate) use options::Trees;
use std::time::Instant;

pub use accept::{AcceptError, Choice};
pub use hunks::{ApplyError, apply_hunks};
pub use model::{Blob, Content, Diff, DiffKind, FileDiff, Hunk, Line, LineTag};
pub use options::{DiffError, DiffOptions};
pub use render::{Binary, RenderOptions, Rendered};

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
        applies::set_applies(&mut files);
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
