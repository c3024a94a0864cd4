//! The directories that a commit works in: those of its steps, and those of the stages around the steps.

use crate::beneath::Workspace;
use crate::faults::Faults;
use crate::meta::FsTime;
use crate::moves::beside::Beside;

/// The directory of all layers, one of them, and the workspace: what the stages around the steps need.
pub(crate) struct LayerDirectories<'a> {
    /// The directory of all layers.
    pub(crate) layers: &'a Workspace,
    /// The layer's directory.
    pub(crate) root: &'a Workspace,
    /// The directory of the workspace.
    pub(crate) base: &'a Workspace,
    /// Id of the layer's run.
    pub(crate) run: &'a str,
}

/// The directories that the steps of a commit work in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommitPlaces<'a> {
    /// The layer's directory.
    pub(crate) root: &'a Workspace,
    /// The directory of the workspace.
    pub(crate) base: &'a Workspace,
    /// The layer's upper directory.
    pub(crate) upper: &'a Workspace,
    /// The staging directory, if the commit has one.
    pub(crate) slots: Option<&'a Workspace>,
    /// The latest time stamp that counts as older than the run.
    pub(crate) started: FsTime,
}

impl<'a> CommitPlaces<'a> {
    /// Returns where versions of `run` go that cannot stay at their paths.
    pub(crate) fn beside(&self, run: &'a str, faults: &'a Faults) -> Beside<'a> {
        Beside { base: self.base, root: self.root, run, faults }
    }
}
