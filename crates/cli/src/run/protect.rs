//! The protected names of a run: what a commit holds back. `direct` has those that `--direct` covers.

use crate::failure::Failure;
use nexus_facility::{Layer, Reach, Rules, Workspace};
use std::path::Path;

/// Returns the rules of a commit of `layer` to the workspace at `path`, with the names that the run adds.
pub fn rules(more: &[String], layer: &Layer, workspace: &Workspace, path: &Path) -> Result<Rules, Failure> {
    let touched = layer.touched(workspace).map_err(|error| {
        let message = format!("the directories of the layer cannot be listed: {}", super::chain(&error));
        Failure::refused(
            "protect",
            message,
            "look at it in the state directory, or throw it away: nexus changes reject",
        )
    })?;
    within(more, workspace, path, Reach::COMMIT, &touched)
}

/// The same without a layer, for what `reach` allows to look at.
pub(super) fn within(
    more: &[String],
    workspace: &Workspace,
    path: &Path,
    reach: Reach,
    touched: &[Vec<u8>],
) -> Result<Rules, Failure> {
    let rules = Rules::protecting(more).map_err(|error| {
        // The names were checked when they were read. Only a changed file of the state directory comes here.
        Failure::refused("protect", error.to_string(), "take the name out of the run's run.json in the state directory")
    })?;
    let host = super::git_host::find(path);
    rules.for_workspace(workspace, path, &host, reach, touched).map_err(|error| {
        let message = format!("the workspace's protected names cannot be found out: {}", super::chain(&error));
        Failure::refused("protect", message, "make that readable, or take it out of the configuration that names it")
    })
}
