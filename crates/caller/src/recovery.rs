//! Calls the engine's recovery of killed runs with the driver, notices and advice of the command line.

use crate::driver::{self, Local};
use crate::failure::Failure;
use crate::notices::print;
use nexus_driver::{DestroyError, Handle, InventoryError};
use nexus_model::RunId;
use nexus_runner::recover::clear;
use nexus_runner::recover::error::ClearError;
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::remains::{Lingering, Remains};
use nexus_runner::state::directory::StateDir;
use std::time::Duration;

/// The driver of this program, for the recovery.
pub struct OfLocal<'a>(pub &'a Local);

impl Remains for OfLocal<'_> {
    fn end(&self, sandboxes: &[(RunId, Option<&Handle>)], within: Duration) -> Result<Vec<Lingering>, InventoryError> {
        let left = self.0.end(sandboxes, within)?;
        Ok(left.into_iter().map(|one| Lingering { run: one.run, process: one.process }).collect())
    }

    fn clear_away(&self, handle: &Handle) -> Result<(), DestroyError> {
        self.0.clear_away(handle)
    }
}

/// Clears up what changes no workspace and names the rest, for commands that only read.
pub fn inspect(places: &StateDir) -> Result<Vec<Interrupted>, Failure> {
    Ok(clear::inspect(places, &OfLocal(&driver::local()), &print)?)
}

/// Clears up what changes no workspace, for commands that decide.
pub fn interrupted(places: &StateDir) -> Result<Vec<Interrupted>, Failure> {
    Ok(clear::interrupted(places, &OfLocal(&driver::local()), &print)?)
}

impl From<ClearError> for Failure {
    fn from(error: ClearError) -> Self {
        let hint = match &error {
            ClearError::NotCleared { .. } => "look at that first: its changes may be half applied".to_owned(),
            ClearError::NoRoom { run, .. } => format!(
                "nexus changes reject --run {run} removes them, which makes room. To keep them, make room elsewhere on that \
                 disk: the next command parks them, and nexus changes show and accept can be used"
            ),
            ClearError::ElsewhereDirect { sandbox, .. } | ClearError::Elsewhere(sandbox) => sandbox.way_out(),
            ClearError::LingersDirect { .. } => {
                "No other run works in that directory until it is gone. Run it again then.".to_owned()
            }
            ClearError::Lingers { .. } => "The changes of the run wait until then. Try it again.".to_owned(),
            ClearError::Held { owner: Some(pid), .. } => {
                format!("Try it again when that process has ended. If it is stopped, kill -CONT {pid} lets it go on.")
            }
            ClearError::Held { owner: None, .. } => "Try it again when that process has ended.".to_owned(),
            ClearError::OtherDriver { record, .. } => format!(
                "Use the nexus that started it. If its sandbox is gone for certain, remove {}: nexus changes list then shows \
                 what the run left.",
                record.display()
            ),
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}
