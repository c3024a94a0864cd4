//! The part of the recovery that a driver does.

use nexus_driver::{DestroyError, Handle, InventoryError};
use nexus_model::RunId;
use rustix::fd::OwnedFd;
use std::time::Duration;

/// A sandbox that was killed and that the kernel has not taken apart.
#[derive(Debug)]
pub struct Lingering {
    /// The run of the sandbox.
    pub run: RunId,
    /// The first process of the sandbox, as a pidfd.
    pub process: OwnedFd,
}

/// Ends and removes what sandboxes left on the host whose caller was killed.
pub trait Remains {
    /// Kills the sandboxes of these runs and waits until all of them are gone, at most `within` for all of them together.
    /// Returns those that are not. A sandbox is found by the id of its run where its handle cannot be read.
    fn end(&self, sandboxes: &[(RunId, Option<&Handle>)], within: Duration) -> Result<Vec<Lingering>, InventoryError>;
    /// Removes what the handle of a sandbox names beside its processes, once these are gone.
    fn clear_away(&self, handle: &Handle) -> Result<(), DestroyError>;
}
