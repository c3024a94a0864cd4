//! Runs that wrote straight into their workspace, as `nexus changes` needs them. Their states are kept elsewhere.

use crate::args::{DiffArgs, UndoArgs};
use crate::failure::Failure;
use crate::run_name::RunName;
use nexus_model::ByteText;

/// A live run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRow {
    /// Id of the run.
    pub run: String,
    /// Path of the workspace.
    pub workspace: ByteText,
    /// Command with its arguments.
    pub command: ByteText,
    /// Hash of the state before it.
    pub checkpoint: String,
}

/// The live runs of this machine.
pub trait LiveRuns {
    /// Returns those that can be undone, the latest first.
    fn list(&self) -> Result<Vec<LiveRow>, Failure>;
    /// Shows the changes of a live run; `None` where another run is meant.
    fn show(&self, run: Option<&RunName>, json: bool) -> Result<Option<String>, Failure>;
    /// Shows them as a diff; `None` where another run is meant.
    fn diff(&self, args: &DiffArgs) -> Result<Option<Vec<u8>>, Failure>;
    /// Brings a workspace back. Returns the answer, and whether all of it is back.
    fn undo(&self, args: &UndoArgs) -> Result<(String, bool), Failure>;
    /// Removes the kept states of a run.
    fn forget(&self, run: &RunName) -> Result<String, Failure>;
}
