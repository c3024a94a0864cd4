//! Refuses a workspace of which a layer would be wrong, before anything is made.

use crate::failure::Failure;
use nexus_facility::Workspace;
use nexus_facility::top::{self, Unfit};
use std::path::Path;

/// Refuses a directory whose new files would get another group or access list in a layer than they get outside.
pub fn check_top(workspace: &Path, in_memory: bool) -> Result<(), Failure> {
    let found = Workspace::open(workspace).and_then(|opened| top::unfit(&opened, in_memory)).map_err(|error| {
        let message = format!("{} cannot be looked at: {}", workspace.display(), super::settle::chain(&error));
        Failure::refused("workspace", message, "Name a directory that you can read and enter with --workspace.")
    })?;
    let Some(unfit) = found else { return Ok(()) };
    let message = format!("{} cannot carry a layer: {unfit}", workspace.display());
    let hint = match unfit {
        Unfit::Group { .. } => "Use --direct, run nexus as root, or join the group (newgrp).",
        Unfit::GroupInMemory { .. } => "Leave --disk out, use --direct, or make the group your own first (newgrp).",
        Unfit::AccessListInMemory { .. } => "Leave --disk out, use --direct, or run nexus as root.",
    };
    Err(Failure::refused("workspace", message, hint))
}
