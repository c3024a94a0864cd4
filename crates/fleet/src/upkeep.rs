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
use nexus_runner::recover::layers::{Parked, park};
use nexus_runner::recover::steps::Recovery;
use nexus_runner::recover::words::finished_line;
use nexus_runner::state::directory::StateDir;
use nexusd::Upkeep;
use std::path::Path;
use std::time::Duration;

/// Recovers runs of a territory.
pub struct TerritoryUpkeep {
    /// Finds and ends what bears our label.
    pub driver: Local,
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

impl Upkeep for TerritoryUpkeep {
    fn recover(
        &self,
        places: &StateDir,
        committed: &mut dyn FnMut(RunId) -> Result<(), String>,
    ) -> Result<Vec<String>, String> {
        let mut left = Vec::new();
        // All commits that were decided: the directories of a territory belong to it alone.
        let found = interrupted(places, &OfLocal(&self.driver), &print);
        for one in found.map_err(|error| Failure::from(error).text())? {
            let mut report = |lines: &[String]| {
                let Some(line) = finished_line(lines) else { return as_notices(&print)(lines) };
                if let Ok(run) = one.run.parse() {
                    committed(run)?;
                }
                // A line for each change would flood the log; the end of the directive is reported to its user.
                as_notices(&print)(std::slice::from_ref(line))
            };
            if let Err(error) = finish(places, &one, &mut report) {
                left.push(error.to_string());
            }
        }
        Ok(left)
    }

    fn raise_limits(&self) {
        crate::used_up::raise_descriptors();
    }

    fn tell(&self, line: &str) {
        tell(line);
    }
}
