//! The directories that the last stage of a commit works in.

use crate::beneath::Workspace;

/// The directory of all layers, one of them, and the workspace.
pub(crate) struct Directories<'a> {
    pub(crate) layers: &'a Workspace,
    pub(crate) root: &'a Workspace,
    pub(crate) base: &'a Workspace,
    pub(crate) run: &'a str,
}
