//! Rolls back a commit when the file system refuses to rename an entry in one of its steps.

use crate::beneath::{Doing as _, IoFailure, Workspace};
use crate::commit::roll_back::reverse;
use crate::entries::changes::{Conflict, Outside};
use crate::entries::protected::Rules;
use crate::journal::file::{JOURNAL, Journal};
use crate::store::layer::{CommitError, CommitState, Committed, Layer};

impl Layer {
    /// Reports whether a commit was decided and that not all of its steps are done.
    pub(crate) fn is_half_way(&self) -> Result<bool, IoFailure> {
        Ok(self.root.stat(JOURNAL.as_bytes()).doing("look at", JOURNAL.as_bytes())?.is_some())
    }

    /// Takes a commit back that met, at a step, what the file system does not move. The layer waits afterwards.
    pub(crate) fn take_back(
        &self,
        workspace: &Workspace,
        rules: &Rules,
        journal: &Journal,
        failure: IoFailure,
    ) -> Result<Committed, CommitError> {
        let run = || self.run.clone();
        let left = reverse(&self.root, workspace, journal, &self.faults);
        let left = left.map_err(|source| CommitError::Interrupted { run: run(), source })?;
        let parked = self.park(workspace, rules).map_err(|source| CommitError::TakenBack { run: run(), source })?;
        let detail = Some(failure.source.to_string());
        let conflict = Conflict { detail, ..Conflict::new(failure.path, Outside::Blocked) };
        let conflicts = std::iter::once(conflict).chain(left).collect();
        Ok(Committed { state: CommitState::Parked, parked: parked.changes, conflicts, ..Committed::nothing() })
    }
}
