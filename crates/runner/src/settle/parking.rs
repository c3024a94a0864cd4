//! A layer whose changes may have to wait.

use crate::causes::chain;
use crate::notices::Notify;
use crate::plan::resolve::ResolvedRun;
use crate::recover::remove::remove;
use crate::request::ChangeMode;
use crate::settle::frontend::{Frontend, Question};
use crate::settle::problem::SettleProblem;
use crate::settle::settled::{ChangesState, Settled};
use crate::state::note;
use nexus_layer::{ChangeSet, Layer, Rules, is_whole_copy};

/// A layer that may have to wait.
pub struct Parking<'a> {
    /// The run that made the layer.
    pub run: &'a ResolvedRun,
    /// The layer of the run.
    pub layer: Layer,
    /// The changes were in memory.
    pub from_memory: bool,
    /// The names that are held back.
    pub rules: &'a Rules,
    /// Talks to the user.
    pub frontend: &'a dyn Frontend,
}

impl Parking<'_> {
    /// Decides what becomes of the changes of a run that may keep them, and asks the user if that is wanted. A run
    /// that changed nothing is not asked about.
    pub fn decide(&self, asked: ChangeMode) -> Result<ChangeMode, String> {
        if asked != ChangeMode::Ask {
            return Ok(asked);
        }
        let workspace = &self.run.site.directory;
        let changes = self.layer.changes(workspace, self.rules).map_err(|error| chain(&error))?;
        // Ends as "nothing", and takes the layer along.
        if changes.is_empty() {
            return Ok(ChangeMode::Commit);
        }
        let question =
            Question { layer: &self.layer, workspace, rules: self.rules, changes: &changes, will_commit: true };
        self.frontend.decide(&question)
    }

    /// Shows the changes to a caller that asked for that, before they are settled. `will_commit` reports whether a
    /// commit follows.
    pub fn inspected(&self, will_commit: bool) -> Result<(), String> {
        if !self.frontend.inspects() {
            return Ok(());
        }
        let workspace = &self.run.site.directory;
        let changes = self.layer.changes(workspace, self.rules).map_err(|error| chain(&error))?;
        if changes.is_empty() {
            return Ok(());
        }
        self.frontend.inspect(&Question {
            layer: &self.layer,
            workspace,
            rules: self.rules,
            changes: &changes,
            will_commit,
        })
    }

    /// Parks the changes by choice, which does not count as a problem.
    pub fn review(self) -> Result<Settled, SettleProblem> {
        match self.layer.park(&self.run.site.directory, self.rules) {
            Ok(changes) if changes.is_empty() => {
                self.remove()?;
                Ok(Settled::default())
            }
            Ok(changes) => {
                keep_note(&self.layer)?;
                Ok(Settled { state: ChangesState::Parked, parked: changes.changes, ..Settled::default() })
            }
            Err(error) => Err(self.lost(&chain(&error))),
        }
    }

    /// Throws the changes away; `report` lists them.
    pub fn discard(self, report: bool) -> Result<Settled, SettleProblem> {
        // What was thrown away is worth a look, but not being able to look must not keep it.
        let changes = || self.layer.changes(&self.run.site.directory, self.rules).unwrap_or_default();
        let changes = if report { changes() } else { ChangeSet::default() };
        self.remove()?;
        Ok(Settled { state: ChangesState::Discarded, changes, ..Settled::default() })
    }

    /// Parks because a commit is not possible.
    pub fn instead(self, why: &str) -> Result<Settled, SettleProblem> {
        let changes = match self.layer.park(&self.run.site.directory, self.rules) {
            Ok(changes) => changes,
            Err(error) => return Err(self.lost(&format!("{why}; {}", chain(&error)))),
        };
        keep_note(&self.layer)?;
        let problem = SettleProblem::NotCommitted { run: self.layer.run().to_string(), why: why.to_owned() };
        Ok(Settled {
            state: ChangesState::Parked,
            parked: changes.changes,
            problem: Some(problem),
            ..Settled::default()
        })
    }

    fn remove(self) -> Result<(), SettleProblem> {
        let run = self.layer.run().to_string();
        let tell: Notify<'_> = &|notice| self.frontend.tell(notice);
        remove(self.layer, tell).map_err(|why| SettleProblem::Discard { run, why })
    }

    /// Neither committed nor parked. What the disk has of the changes stays and is listed by its note; a review reads
    /// it again.
    fn lost(self, why: &str) -> SettleProblem {
        let (mut layer, run, from_memory) = (self.layer, self.run.plan.run_id, self.from_memory);
        if from_memory && !is_whole_copy(layer.root()).unwrap_or(false) {
            layer.set_partial();
        }
        if from_memory && layer.is_bare().unwrap_or(false) {
            let tell: Notify<'_> = &|notice| self.frontend.tell(notice);
            let left = remove(layer, tell).err().map(|why| format!("; and then: {why}")).unwrap_or_default();
            return SettleProblem::Gone { why: format!("{why}{left}") };
        }
        let unsynced = note::sync(layer.root()).err();
        let unsynced = unsynced.map(|error| format!("; a power cut may lose them: {error}")).unwrap_or_default();
        SettleProblem::Lost { run, why: format!("{why}{unsynced}"), from_memory, upper: layer.upper() }
    }
}

/// Brings the note to the disk: from here on it has to outlive a power cut, and most layers end without that.
pub fn keep_note(layer: &Layer) -> Result<(), SettleProblem> {
    note::sync(layer.root()).map_err(|error| SettleProblem::NoteUnsynced {
        run: layer.run().to_string(),
        path: layer.root().to_owned(),
        why: error.to_string(),
    })
}
