//! Notices that the engine gives its caller while it works: each is one sentence for a person, with its facts.

use crate::recover::error::ClearError;
use crate::session::silent::Silent;
use nexus_layer::{Leftover, Stash};
use nexus_model::RunId;

/// A fact for a person about a run that did not fail.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Notice {
    /// An entry could not be removed. It stays, and no later command waits for it.
    #[error("{0} Nexus is done with it; remove it when you do not need it any more.")]
    Leftover(Leftover),
    /// The rest of a run needs something that only the workspace has.
    #[error("{0}")]
    Needed(Leftover),
    /// A commit with uncommitted changes was taken out of a working tree of git.
    #[error("{0}")]
    Stash(Stash),
    /// A layer is removed bit by bit.
    #[error(
        "What the run wrote takes long to remove: later commands remove the rest, and nexus changes recover all of it."
    )]
    RemovedLater,
    /// Processes of a sandbox whose first process does not die are still alive.
    #[error("Not every process of the sandbox could be killed: {why}.")]
    NotAllKilled {
        /// The answer of the system.
        why: String,
    },
    /// The run starts when a commit of another run to its workspace has ended.
    #[error(
        "Another nexus brings changes to this workspace, and the run starts when it has ended. Ctrl-C ends the wait."
    )]
    WaitsForCommit,
    /// A sandbox that is not gone cannot be left to a later command.
    #[error("the kernel still takes the sandbox apart, and nexus waits, since it cannot note that: {why}")]
    WaitsForSandbox {
        /// The answer of the system.
        why: String,
    },
    /// The command has ended, and the kernel still takes its sandbox apart.
    #[error("The command has ended, and the kernel still frees what its processes held. nexus waits for that.")]
    Lingers,
    /// The supervisor of a sandbox does not answer, and a command waits for it.
    #[error("{0}. nexus waits for it.")]
    SupervisorSilent(Silent),
    /// A supervisor that was stopped is made to go on.
    #[error(
        "The supervisor of the sandbox {id} (process {pid}) is stopped. nexus lets it go on, so that it can end the sandbox."
    )]
    SupervisorResumed {
        /// The id of the sandbox.
        id: RunId,
        /// The process id of the supervisor.
        pid: u32,
    },
    /// A change in conflict cannot be decided for the run.
    #[error("{why}: it waits")]
    KeepsWaiting {
        /// The error, with the path of the change.
        why: String,
    },
    /// Something was done for a run that was killed, or is left of it.
    #[error("{0}")]
    Recovered(String),
    /// A run that was killed is not cleared up. The caller adds its advice.
    #[error("{0}")]
    NotCleared(ClearError),
}

/// Takes the notices of the engine.
pub type Notify<'a> = &'a dyn Fn(&Notice);

/// Tells of entries that could not be removed, and of those that have to stay.
pub fn tell_leftovers<'a>(tell: Notify<'_>, left: impl IntoIterator<Item = &'a Leftover>) {
    for one in left {
        tell(&if one.is_needed { Notice::Needed(one.clone()) } else { Notice::Leftover(one.clone()) });
    }
}
