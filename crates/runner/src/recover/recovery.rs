//! The steps of the recovery that a run needs from its caller.

use crate::state::directory::StateDir;
use nexus_driver::Handle;
use nexus_layer::Workspace;
use nexus_model::RunId;
use std::path::Path;

/// Recovers what runs left that were interrupted.
pub trait Recovery {
    /// Finishes all interrupted commits of a directory but the one of the run `own`. The caller holds its lock.
    fn finish_others(&self, places: &StateDir, own: &str, path: &Path, directory: &Workspace) -> Result<(), String>;
    /// Reports whether a later command finds a killed sandbox by its label.
    fn finds(&self, run: RunId, handle: &Handle) -> bool;
    /// Keeps what a run had written whose changes were not settled.
    fn park(&self, places: &StateDir, run: &str) -> Result<(), String>;
}
