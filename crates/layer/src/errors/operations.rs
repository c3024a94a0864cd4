//! Errors of the operations on a layer: one type for each, which says the state that the workspace and the layer are
//! in.

use crate::beneath::IoFailure;
use nexus_model::ByteText;

/// Reason for which a layer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateLayerError {
    /// Not usable as the name of a directory.
    #[error("{run:?} is not a run id")]
    RunId {
        /// Text that was given as a run id.
        run: String,
    },
    /// A call failed.
    #[error("cannot make the layer of {run}")]
    Io {
        /// Id of the run.
        run: String,
        /// The call that failed.
        source: IoFailure,
    },
}

/// Reason for which a parked layer could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLayerError {
    /// No parked layer has this name.
    #[error("there is no parked layer {run:?}")]
    NotParked {
        /// Text that was given as a run id.
        run: String,
    },
    /// Another process works with it.
    #[error("the layer {run} is in use")]
    Busy {
        /// Id of the run.
        run: String,
    },
    /// A commit was interrupted; `recover` has to run first.
    #[error("a commit of the layer {run} was interrupted and has to be recovered")]
    Unfinished {
        /// Id of the run.
        run: String,
    },
    /// Written by another version of this program.
    #[error("the layer {run} has the unknown version {version}")]
    Version {
        /// Id of the run.
        run: String,
        /// The version found.
        version: u32,
    },
    /// A call failed.
    #[error("cannot open the layer of {run}")]
    Io {
        /// Id of the run.
        run: String,
        /// The call that failed.
        source: IoFailure,
    },
}

/// Reason for which a layer could not be read. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReadLayerError {
    /// Root's layers need `trusted.*` attributes, which this process cannot see (CAP_SYS_ADMIN).
    #[error("this process cannot see overlay's attributes")]
    Blind,
    /// The layer has a mark that this version cannot interpret, or marks that contradict each other.
    #[error("the layer cannot be interpreted: {reason}")]
    Marks {
        /// The mark, and the entry that has it.
        reason: String,
    },
    /// A call failed.
    #[error("cannot read the layer")]
    Io {
        /// The call that failed.
        source: IoFailure,
    },
}

/// Reason for which a commit failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Before anything was decided: the workspace is unchanged, the layer too.
    #[error(transparent)]
    Read(#[from] ReadLayerError),
    /// A file of the layer has another size than when it was parked. Nothing was changed.
    #[error("{path:?} is not what it was when the changes of {run} were parked (a power cut?)")]
    Damaged {
        /// Id of the run.
        run: String,
        /// Path of the file.
        path: ByteText,
    },
    /// An entry of the layer was changed after it was parked or shown. Nothing was changed.
    #[error("{path:?} was changed after the changes of {run} were parked, or shown for the last time")]
    Altered {
        /// Id of the run.
        run: String,
        /// Path of the entry.
        path: ByteText,
    },
    /// Before anything was decided: the workspace is unchanged, the layer too.
    #[error("cannot prepare the commit of {run}")]
    Prepare {
        /// Id of the run.
        run: String,
        /// The call that failed.
        source: IoFailure,
    },
    /// A step of the decided commit met what the file system does not move, and the commit was taken back: the workspace is
    /// as before. The layer could not be parked then.
    #[error("the commit of {run} was taken back, and its changes could not be parked")]
    TakenBack {
        /// Id of the run.
        run: String,
        /// The error of parking the layer.
        source: ParkError,
    },
    /// After the commit point: the workspace may be in between. `recover` brings it to the new version, or to the old one if
    /// `journal.back` exists.
    #[error("the commit of {run} was interrupted and has to be recovered")]
    Interrupted {
        /// Id of the run.
        run: String,
        /// The call that failed.
        source: IoFailure,
    },
}

/// Reason for which a layer could not be parked.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadLayerError),
    /// A call failed.
    #[error("cannot park the layer of {run}")]
    Io {
        /// Id of the run.
        run: String,
        /// The call that failed.
        source: IoFailure,
    },
}

/// Reason for which a layer could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove the layer of {run}")]
pub struct DiscardError {
    /// Id of the run.
    pub run: String,
    /// The call that failed.
    pub source: IoFailure,
}
