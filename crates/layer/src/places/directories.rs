//! The directories of a layer and its workspace, from which a stage opens its
//! [`CommitPlaces`](crate::places::commit_places::CommitPlaces).

use crate::beneath::Workspace;

/// The directory of all layers, one of them, and the workspace.
pub(crate) struct Directories<'a> {
    pub(crate) layers: &'a Workspace,
    pub(crate) root: &'a Workspace,
    pub(crate) base: &'a Workspace,
    pub(crate) run: &'a str,
}
