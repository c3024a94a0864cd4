//! The part of the recovery that the composition root brings: this crate must not name its types.

use nexus_model::RunId;
use nexus_runner::recover::recovery::Recovery;
use nexus_runner::state::directory::StateDir;

/// Hears of each run whose commit is finished, and of what of it is not where it was to be.
pub type Committed<'a> = &'a mut dyn FnMut(RunId, Option<&str>) -> Result<(), String>;

/// A commit that has started and cannot be finished now: half of it is in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    /// The run of the commit, where it is known.
    pub run: Option<RunId>,
    /// The cause, for a person to read.
    pub why: String,
}

/// Recovers what runs left, and prepares this process for many of them.
pub trait Upkeep: Recovery + Send + Sync {
    /// Recovers everything that an earlier daemon left: kills its sandboxes, parks undecided changes, finishes decided
    /// commits. Called once, while no run of this territory is going on. `committed` hears of each run whose commit is finished, before
    /// the record of the run goes: after another crash it hears of it again. Returns what could not be recovered.
    fn recover(&self, places: &StateDir, committed: Committed<'_>) -> Result<Vec<Unfinished>, String>;
    /// Tries those commits again that could not be finished, while nothing else works in their directories. Returns those that still
    /// cannot be. One that another command has ended counts as finished in part: how is not known.
    fn finish_again(&self, places: &StateDir, committed: Committed<'_>) -> Vec<Unfinished>;
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
