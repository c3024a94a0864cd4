//! The errors of a run.

use crate::causes::chain;
use crate::live::covers::Unseen;
use crate::live::input::InputLost;
use crate::net::record::CreateError;
use crate::net::service::ServeError;
use crate::settle::problem::{INTERRUPTED, SettleProblem};
use crate::settle::settled::{ChangesState, Settled};
use crate::state::commit_lock::Replaced;
use nexus_driver::{NotStarted, PrepareError, StartError};
use nexus_model::RunId;
use nexus_receipt::IssueError;
use std::io;
use std::path::PathBuf;

/// A run has no receipt.
#[derive(Debug, thiserror::Error)]
pub enum ReceiptError {
    /// The summary of the network has no hash.
    #[error("the run has no receipt: its network summary has no hash")]
    NetworkHash,
    /// The changes have no hash.
    #[error("the run has no receipt: its changes have no hash")]
    ChangesHash,
    /// The receipt cannot be signed or stored.
    #[error("the run has no receipt: {0}")]
    Issue(IssueError),
}

impl ReceiptError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NetworkHash | Self::ChangesHash => "receipt",
            Self::Issue(error) => error.code(),
        }
    }
}

/// A run that has no report.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The driver cannot run the plan here.
    #[error(transparent)]
    Prepare(PrepareError),
    /// The run cannot be recorded.
    #[error("the run cannot be recorded in {}: {source}", path.display())]
    Record {
        /// The directory of the records.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// A commit to the workspace does not end.
    #[error("{} cannot be locked: {source}", path.display())]
    Lock {
        /// The path of the workspace.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The layer cannot be made.
    #[error("no layer for the workspace could be made: {why}")]
    Layer {
        /// The cause of it.
        why: String,
    },
    /// The network cannot be recorded.
    #[error(transparent)]
    NetworkRecord(CreateError),
    /// A path that has to be covered changed.
    #[error("what the run has to cover changed while it was prepared: {}", chain(.0))]
    Covers(Unseen),
    /// The sandbox could not be started.
    #[error(transparent)]
    Start(StartError),
    /// The command was not started in the sandbox.
    #[error(transparent)]
    NotStarted(NotStarted),
    /// The network could not be served.
    #[error(transparent)]
    Serve(ServeError),
    /// The workspace was moved or replaced while the sandbox was being set up.
    #[error("the command was ended: {0}")]
    Moved(io::Error),
    /// The command was never asked for: its streams could not be made, or the request could not be sent.
    #[error("the command could not be started: {0}")]
    Unstarted(io::Error),
    /// The output could not be passed on.
    #[error("the command was ended because its output could not be passed on: {0}")]
    Output(io::Error),
    /// Standard input could not be read.
    #[error("the command was ended because its input could not be read: {0}")]
    Input(io::Error),
    /// A call failed that should not.
    #[error("{what}: {why}")]
    Internal {
        /// The step of the run.
        what: &'static str,
        /// The error of the call.
        why: String,
    },
    /// The changes could not be settled.
    #[error(transparent)]
    Unsettled(SettleProblem),
    /// An error cut the run short, and the changes could not be settled either.
    #[error("{broken}; and then: {problem}")]
    BrokenUnsettled {
        /// The first error.
        broken: Box<RunError>,
        /// The problem with the changes, which decides whether the record stays.
        problem: SettleProblem,
    },
    /// An error cut the run short, and its changes are settled.
    #[error("{broken}; {}{}", became(*state), problem.as_ref().map(|one| format!("; {one}")).unwrap_or_default())]
    Broken {
        /// The error that ended the run.
        broken: Box<RunError>,
        /// The id of the run.
        run: RunId,
        /// The state of the changes.
        state: ChangesState,
        /// The reason why the changes are not in the workspace.
        problem: Option<Box<SettleProblem>>,
    },
    /// The run has no receipt.
    #[error(transparent)]
    Receipt(ReceiptError),
    /// Two errors, one after the other.
    #[error("{first}; and then: {then}")]
    Then {
        /// The error that counts.
        first: Box<RunError>,
        /// The error while clearing up.
        then: Box<RunError>,
    },
}

/// Describes what happened to the changes of a run that was cut short.
#[must_use]
pub fn became(state: ChangesState) -> &'static str {
    match state {
        ChangesState::None => "it had changed nothing",
        ChangesState::Committed => "its changes are committed",
        ChangesState::Discarded => "its changes were discarded",
        ChangesState::Parked | ChangesState::Failed => "its changes are parked",
    }
}

impl RunError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Prepare(error) => error.code(),
            Self::Record { .. } => "state_dir",
            Self::Lock { .. } => "lock",
            Self::Layer { .. } => "layer",
            Self::NetworkRecord(error) => error.code(),
            Self::Covers(_) => "protect",
            Self::Start(error) => error.code(),
            Self::NotStarted(NotStarted::Proof { .. }) => "proof",
            Self::NotStarted(_) | Self::Unstarted(_) => "set_up",
            Self::Serve(error) => error.code(),
            Self::Moved(_) => "moved",
            Self::Output(_) => "output",
            Self::Input(_) => "input",
            Self::Internal { .. } => "internal",
            Self::Unsettled(problem) | Self::BrokenUnsettled { problem, .. } => problem.code(),
            Self::Broken { broken, .. } => broken.code(),
            Self::Receipt(error) => error.code(),
            Self::Then { first, .. } => first.code(),
        }
    }

    /// Reports whether a commit stopped half-way, so that the record of the run has to stay.
    #[must_use]
    pub fn is_half_way(&self) -> bool {
        self.code() == INTERRUPTED
    }

    /// Adds an error that came while clearing up.
    #[must_use]
    pub fn then(self, second: Self) -> Self {
        Self::Then { first: Box::new(self), then: Box::new(second) }
    }

    pub(crate) fn internal(what: &'static str, error: &dyn std::fmt::Display) -> Self {
        Self::Internal { what, why: error.to_string() }
    }

    /// Returns the error of a pump.
    pub(crate) fn of_pump(error: io::Error) -> Self {
        match error.get_ref() {
            Some(why) if why.is::<Replaced>() => Self::Moved(error),
            Some(why) if why.is::<InputLost>() => Self::Input(error),
            _ => Self::Output(error),
        }
    }

    /// Adds what became of the changes of the run.
    pub(crate) fn beside(self, settled: &Settled, run: RunId) -> Self {
        Self::Broken {
            broken: Box::new(self),
            run,
            state: settled.state,
            problem: settled.problem.clone().map(Box::new),
        }
    }
}
