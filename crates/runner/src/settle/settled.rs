//! The result of settling a run's changes.

use crate::settle::problem::SettleProblem;
use nexus_layer::{Change, ChangeSet, Conflict};
use nexus_model::ByteText;
use serde::Serialize;

/// The state of the changes of a run that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ChangesState {
    /// The run changed no file, or had no layer.
    #[default]
    None,
    /// The changes are in the workspace.
    Committed,
    /// The changes wait in the layer.
    Parked,
    /// The changes were thrown away.
    Discarded,
    /// Settling failed. Only a receipt says this; the run itself ends with the failure.
    Failed,
}

/// Result of settling a run's changes.
#[derive(Debug, Default)]
pub struct Settled {
    /// The state of the changes.
    pub state: ChangesState,
    /// The changes that reached the workspace, or would have.
    pub changes: ChangeSet,
    /// The changes that wait for an accept.
    pub parked: Vec<Change>,
    /// The paths that changed outside meanwhile.
    pub conflicts: Vec<Conflict>,
    /// Number of files that were replaced or deleted though the kernel could not tell whether a process was writing
    /// to them.
    pub unwatched: u64,
    /// Replaced or deleted files that programs had open for reading. Looked for only when the request wants that.
    pub readers: Vec<ByteText>,
    /// The reason why changes that should have been committed were not.
    pub problem: Option<SettleProblem>,
}

impl Settled {
    /// Reports whether all changes are in the workspace: none waits, and none was thrown away.
    #[must_use]
    pub fn is_all_there(&self) -> bool {
        let is_there = matches!(self.state, ChangesState::None | ChangesState::Committed);
        is_there && self.parked.is_empty() && self.problem.is_none()
    }

    /// Builds the result of a run whose changes could not be settled.
    #[must_use]
    pub fn failed(why: SettleProblem) -> Self {
        Self { state: ChangesState::Failed, problem: Some(why), ..Self::default() }
    }
}
