//! How the operations on a layer fail: one type for each, saying what state the workspace and the layer are in.

use crate::beneath::IoFailure;
use nexus_model::ByteText;

/// Why a layer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateLayerError {
    /// Not usable as a folder's name.
    #[error("{run:?} is no run id")]
    RunId {
        /// The name.
        run: String,
    },
    /// A call failed.
    #[error("cannot make the layer of {run}")]
    Io {
        /// Its run.
        run: String,
        /// The call.
        source: IoFailure,
    },
}

/// Why a parked layer could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenLayerError {
    /// There is none of this name.
    #[error("there is no parked layer {run:?}")]
    NotParked {
        /// The name.
        run: String,
    },
    /// Somebody works with it.
    #[error("the layer {run} is in use")]
    Busy {
        /// Its run.
        run: String,
    },
    /// A commit was interrupted; `recover` has to run first.
    #[error("a commit of the layer {run} was interrupted and has to be recovered")]
    Unfinished {
        /// Its run.
        run: String,
    },
    /// Written by another version of this program.
    #[error("the layer {run} has the unknown version {version}")]
    Version {
        /// Its run.
        run: String,
        /// The version found.
        version: u32,
    },
    /// A call failed.
    #[error("cannot open the layer of {run}")]
    Io {
        /// Its run.
        run: String,
        /// The call.
        source: IoFailure,
    },
}

/// Why a layer could not be read. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReadLayerError {
    /// Root's layers need `trusted.*` attributes, which this process cannot see (CAP_SYS_ADMIN).
    #[error("this process cannot see overlay's attributes")]
    Blind,
    /// The layer has a mark that this version cannot interpret, or marks that contradict each other.
    #[error("the layer cannot be interpreted: {reason}")]
    Marks {
        /// Which, and where.
        reason: String,
    },
    /// A call failed.
    #[error("cannot read the layer")]
    Io {
        /// The call.
        source: IoFailure,
    },
}

/// Why a commit failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Before anything was decided: the workspace is unchanged, the layer too.
    #[error(transparent)]
    Read(#[from] ReadLayerError),
    /// A file of the layer has another size than when it was parked. Nothing was changed.
    #[error("{path:?} is not what it was when the changes of {run} were parked (a power cut?)")]
    Damaged {
        /// The run.
        run: String,
        /// The file.
        path: ByteText,
    },
    /// An entry of the layer was changed after it was parked or shown. Nothing was changed.
    #[error("{path:?} was changed after the changes of {run} were parked, or shown for the last time")]
    Altered {
        /// The run.
        run: String,
        /// The entry.
        path: ByteText,
    },
    /// Before anything was decided: the workspace is unchanged, the layer too.
    #[error("cannot prepare the commit of {run}")]
    Prepare {
        /// The run.
        run: String,
        /// The call.
        source: IoFailure,
    },
    /// After the commit point: the workspace may be in between, and `recover` brings it to the new version.
    #[error("the commit of {run} was interrupted and has to be recovered")]
    Interrupted {
        /// The run.
        run: String,
        /// The call.
        source: IoFailure,
    },
}

/// Why a layer could not be parked.
#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadLayerError),
    /// A call failed.
    #[error("cannot park the layer of {run}")]
    Io {
        /// The run.
        run: String,
        /// The call.
        source: IoFailure,
    },
}

/// Why a layer could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove the layer of {run}")]
pub struct DiscardError {
    /// The run.
    pub run: String,
    /// The call.
    pub source: IoFailure,
}
