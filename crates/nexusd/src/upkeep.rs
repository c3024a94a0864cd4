//! The part of the recovery that the composition root brings: this crate must not name its types.

use nexus_model::RunId;
use nexus_runner::recover::steps::Recovery;
use nexus_runner::state::directory::StateDir;

/// Recovers what runs left, and prepares this process for many of them.
pub trait Upkeep: Recovery + Send + Sync {
    /// Recovers everything that an earlier daemon left: kills its sandboxes, parks undecided changes, finishes decided
    /// commits. Called once, while no run of this territory is going on. `committed` hears of each run whose commit is finished, before
    /// the record of the run goes: after another crash it hears of it again. Returns what could not be recovered.
    fn recover(
        &self,
        places: &StateDir,
        committed: &mut dyn FnMut(RunId) -> Result<(), String>,
    ) -> Result<Vec<String>, String>;
    /// Raises the limit of descriptors, when the launcher has the lower one already.
    fn raise_limits(&self);
    /// Writes one line for the operator.
    fn tell(&self, line: &str);
}

/// Returns the part of it that one run needs.
#[must_use]
pub fn as_recovery(upkeep: &dyn Upkeep) -> &dyn Recovery {
    upkeep
}
