//! The errors of this crate that its callers handle. Each type says the state that the workspace and the layer are
//! in.
//!
//! * `operations`: the errors of the operations on a layer
//! * `recovery`: the errors of recovering, rolling back or abandoning a layer after a crash

pub(crate) mod operations;
pub(crate) mod recovery;

pub use self::operations::{CommitError, CreateLayerError, DiscardError, OpenLayerError, ParkError, ReadLayerError};
pub use self::recovery::RecoverError;
