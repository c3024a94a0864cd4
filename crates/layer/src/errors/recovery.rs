//! The errors of recovering, rolling back or abandoning a layer after a crash.

use crate::beneath::IoFailure;

/// Error of recovering a layer. The layer is unchanged or closer to its end, and the call may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// Not the name of a run.
    #[error("{run:?} is not a run id")]
    RunId {
        /// Text that was given as a run id.
        run: String,
    },
    /// Another process works with the layer.
    #[error("the layer {run} is in use")]
    Busy {
        /// Id of the run.
        run: String,
    },
    /// The journal is of another version of this program.
    #[error("the journal of {run} has the unknown version {version}")]
    Version {
        /// Id of the run.
        run: String,
        /// The version found.
        version: u32,
    },
    /// A commit was decided and neither finished nor taken back.
    #[error("a commit of {run} was decided and not finished")]
    Decided {
        /// Id of the run.
        run: String,
    },
    /// A process started to set the layer aside and did not finish.
    #[error("the layer of {run} was being set aside, and nexus changes reject --set-aside --run {run} ends that")]
    HalfAside {
        /// Id of the run.
        run: String,
    },
    /// The journal belongs to another run or another workspace.
    #[error("the journal of {run} is for {found}")]
    Foreign {
        /// Id of the run.
        run: String,
        /// The run or workspace that the journal names.
        found: String,
    },
    /// The commit is past the point from which it can be taken back.
    #[error("the commit of {run} is applied and can only be finished")]
    Applied {
        /// Id of the run.
        run: String,
    },
    /// A call failed.
    #[error("cannot recover the layer of {run}")]
    Io {
        /// Id of the run.
        run: String,
        /// The call that failed.
        source: IoFailure,
    },
}
