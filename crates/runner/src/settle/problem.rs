//! Names what keeps the changes of a run from the workspace.

use crate::recover::interrupted::Direction;
use nexus_model::RunId;
use std::path::PathBuf;

/// The code of a failure after which the record of the run must stay: the next command finishes the commit by it.
pub const INTERRUPTED: &str = "commit_interrupted";

/// The changes of a run are not where they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettleProblem {
    /// A layer cannot be removed.
    #[error("{why}")]
    Discard {
        /// The id of the run.
        run: String,
        /// The call that failed.
        why: String,
    },
    /// The changes wait instead of being committed.
    #[error("the changes could not be committed: {why}")]
    NotCommitted {
        /// The id of the run.
        run: String,
        /// The cause of it.
        why: String,
    },
    /// The changes were in memory and could not be saved.
    #[error("the changes are gone: they were in memory and could not be copied to the disk: {why}")]
    Gone {
        /// The cause of it.
        why: String,
    },
    /// The disk holds the changes, and they are in no list of what waits.
    #[error("the changes could neither be committed nor parked: {why}")]
    Lost {
        /// The id of the run.
        run: RunId,
        /// The cause of it.
        why: String,
        /// A part of the changes may be missing, since they were in memory.
        from_memory: bool,
        /// The directory that holds the files.
        upper: PathBuf,
    },
    /// A process of the host changed a path that the run changed, too.
    #[error("{}: {} {happened}{}", committed(*.partly), path.display(), and_more(*.more))]
    Conflict {
        /// The id of the run.
        run: String,
        /// The first path.
        path: PathBuf,
        /// The change of the path, and when it happened.
        happened: String,
        /// Other changes were committed.
        partly: bool,
        /// The number of further paths.
        more: usize,
        /// The changes of the run wait.
        waits: bool,
    },
    /// A commit that was decided left paths out, because they changed outside.
    #[error("{what}")]
    LeftOut {
        /// Names the paths.
        what: String,
    },
    /// A commit was decided and can neither be finished nor taken back now.
    #[error("{why}")]
    Interrupted {
        /// The id of the run.
        run: String,
        /// The calls that failed.
        why: String,
        /// The way in which the commit can end.
        ending: Direction,
    },
    /// The changes are committed, and what waits cannot be read.
    #[error("the changes are committed, but what waits for a decision cannot be read: {why}")]
    RestUnreadable {
        /// The id of the run.
        run: String,
        /// The cause of it.
        why: String,
    },
    /// The changes wait, and their note is not on the disk.
    #[error("the changes are parked, but {} may be lost in a power cut: {why}", path.display())]
    NoteUnsynced {
        /// The id of the run.
        run: String,
        /// The root of the layer.
        path: PathBuf,
        /// The answer of the system.
        why: String,
    },
    /// The sandbox of a direct run was killed and is not gone.
    #[error("The kernel still takes the sandbox apart")]
    LingersDirect,
    /// The sandbox was killed and is not gone, so that the changes were not looked at.
    #[error("The kernel still takes the sandbox apart, so its changes were not looked at and wait")]
    LingersParked {
        /// The id of the run.
        run: RunId,
    },
    /// The sandbox was killed and is not gone, so that its layer is not removed.
    #[error("The kernel still takes the sandbox apart, so what it wrote is not removed yet")]
    LingersDiscarded,
    /// The sandbox was killed and is not gone, and that cannot be noted.
    #[error("The kernel still takes the sandbox apart, so its changes wait, and why they do cannot be noted: {why}")]
    LingersUnnoted {
        /// The id of the run.
        run: RunId,
        /// The answer of the system.
        why: String,
    },
}

fn committed(partly: bool) -> &'static str {
    if partly { "not everything was committed" } else { "nothing was committed" }
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

impl SettleProblem {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Discard { .. } => "discard",
            Self::NotCommitted { .. } | Self::Gone { .. } | Self::Lost { .. } | Self::NoteUnsynced { .. } => "commit",
            Self::Conflict { .. } | Self::LeftOut { .. } => "conflict",
            Self::Interrupted { .. } => INTERRUPTED,
            Self::RestUnreadable { .. } => "parked",
            Self::LingersDirect | Self::LingersParked { .. } | Self::LingersDiscarded | Self::LingersUnnoted { .. } => {
                "lingers"
            }
        }
    }
}
