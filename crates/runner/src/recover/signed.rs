//! Reads the end of a run from its receipt, for a caller that died before it noted the end itself.

use crate::state::directory::StateDir;
use nexus_model::exit::REFUSED;
use nexus_model::{ExitReason, RunId};
use nexus_receipt::{DirectoryError, Invalid, KeyDirectory, KeyError, Receipt, Source, Store};
use std::io;
use std::path::PathBuf;

/// The end of a run as its receipt states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedEnd {
    /// The exit code.
    pub exit: u8,
    /// The reason for the end of the run.
    pub reason: ExitReason,
    /// True if changes that should have been committed were not.
    pub unsettled: bool,
    /// Milliseconds from the beginning of the run until its end.
    pub duration_ms: u64,
    /// The path of the receipt.
    pub path: PathBuf,
}

/// The receipt of a run cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SignedEndError {
    /// The keys cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The directory of the receipts cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The file cannot be read.
    #[error("the receipt of the run {run} cannot be read: {source}")]
    Read {
        /// The run whose receipt it is.
        run: RunId,
        /// The answer of the system.
        source: io::Error,
    },
    /// The receipt is not one of this run that a key of this state directory signed.
    #[error("the receipt of the run {run} is refused: {why}")]
    Refused {
        /// The run whose receipt it is.
        run: RunId,
        /// The fault of the receipt.
        why: String,
    },
}

/// Reads the end of a run. `None` when the run has no receipt: then nothing is known of its end.
pub fn signed_end(places: &StateDir, run: RunId) -> Result<Option<SignedEnd>, SignedEndError> {
    let store = Store::open(&places.state)?;
    let file = match store.read(run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|source| SignedEndError::Read { run, source })?,
    };
    let ring = KeyDirectory::open(&places.state)?.known()?.ring();
    let refused = |why: String| SignedEndError::Refused { run, why };
    let opened = Source::Run(run).open(&file, &ring).map_err(|invalid: Invalid| refused(invalid.to_string()))?;
    let reason = reason(&opened.receipt).map_err(|error| refused(error.to_string()))?;
    let Receipt { exit, changes, timing, .. } = opened.receipt;
    let unsettled = exit.code == REFUSED && matches!(changes.state.as_str(), "parked" | "failed");
    let duration_ms = timing.duration_us / 1000;
    Ok(Some(SignedEnd { exit: exit.code, reason, unsettled, duration_ms, path: store.place(run) }))
}

fn reason(receipt: &Receipt) -> Result<ExitReason, serde_json::Error> {
    serde_json::from_value(serde_json::Value::String(receipt.exit.reason.clone()))
}
