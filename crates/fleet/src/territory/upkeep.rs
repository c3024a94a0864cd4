//! The recovery that the daemon needs from the command line, and its words for the operator.

use crate::driver::Local;
use crate::failure::Failure;
use crate::notices::{print, tell};
use crate::recovery::OfLocal;
use nexus_driver::Handle;
use nexus_layer::Workspace;
use nexus_model::RunId;
use nexus_runner::recover::clear::interrupted;
use nexus_runner::recover::finish::{as_notices, finish, finish_others};
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::recover::layers::{Parked, park};
use nexus_runner::recover::recovery::Recovery;
use nexus_runner::recover::report::{Outcome, RecoveryReport};
use nexus_runner::state::directory::StateDir;
use nexusd::upkeep::{Committed, Unfinished, Upkeep};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Recovers runs of a territory.
pub struct TerritoryUpkeep {
    /// Finds and ends what bears our label.
    pub driver: Local,
    /// Commits that could not be finished yet.
    left: Mutex<Vec<Interrupted>>,
}

impl Recovery for TerritoryUpkeep {
    fn finish_others(&self, places: &StateDir, own: &str, path: &Path, directory: &Workspace) -> Result<(), String> {
        finish_others(places, own, path, directory, &print)
    }

    fn finds(&self, run: RunId, handle: &Handle) -> bool {
        let shown = self.driver.end(&[(run, Some(handle))], Duration::ZERO);
        shown.is_ok_and(|shown| !shown.is_empty())
    }

    fn park(&self, places: &StateDir, run: &str) -> Result<(), String> {
        match park(places, run, &print)? {
            Parked::Done => Ok(()),
            Parked::NoRoom { why } => Err(why),
        }
    }
}

impl TerritoryUpkeep {
    /// Makes the recovery of a territory whose sandboxes this driver finds.
    pub fn new(driver: Local) -> Self {
        Self { driver, left: Mutex::default() }
    }

    /// Finishes these commits, and keeps those that cannot be finished now for the next try.
    fn finish_all(&self, places: &StateDir, found: Vec<Interrupted>, committed: Committed<'_>) -> Vec<Unfinished> {
        let (mut left, mut unfinished) = (Vec::new(), Vec::new());
        for one in found {
            let run = one.run.parse::<RunId>().ok();
            let mut report = |done: &RecoveryReport| {
                let left_out = match &done.ending {
                    Outcome::Finished => None,
                    Outcome::InPart(what) => Some(what.clone()),
                    Outcome::Elsewhere => Some(format!("another command ended the commit of the run {}", one.run)),
                    Outcome::TakenBack => return as_notices(&print)(done),
                };
                if let Some(run) = run {
                    committed(run, left_out.as_deref())?;
                }
                // A line for each change would flood the log; the end of the directive is reported to its user.
                let lines = done.lines.first().cloned().into_iter().chain(left_out).collect();
                as_notices(&print)(&RecoveryReport { ending: done.ending.clone(), lines })
            };
            if let Err(error) = finish(places, &one, &mut report) {
                unfinished.push(Unfinished { run, why: error.to_string() });
                left.push(one);
            }
        }
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
        unfinished
    }
}

impl Upkeep for TerritoryUpkeep {
    fn recover(&self, places: &StateDir, committed: Committed<'_>) -> Result<Vec<Unfinished>, String> {
        // All commits that were decided: the directories of a territory belong to it alone.
        let found = interrupted(places, &OfLocal(&self.driver), &print);
        let found = found.map_err(|error| Failure::from(error).text())?;
        Ok(self.finish_all(places, found, committed))
    }

    fn finish_again(&self, places: &StateDir, committed: Committed<'_>) -> Vec<Unfinished> {
        let found = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        self.finish_all(places, found, committed)
    }

    fn raise_limits(&self) {
        crate::used_up::raise_descriptors();
    }

    fn tell(&self, line: &str) {
        tell(line);
    }
}
