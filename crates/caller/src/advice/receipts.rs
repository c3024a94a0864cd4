//! Adds advice to the errors of `nexus-receipt`.

use crate::failure::Failure;
use nexus_receipt::{DirectoryError, Issuer, KeyError, OpenError};
use nexus_runner::state::directory::StateDir;
use std::time::{SystemTime, UNIX_EPOCH};

/// Makes sure that a run can have a receipt. Call it before the sandbox is made.
pub fn open_issuer(places: &StateDir) -> Result<Issuer, Failure> {
    nexus_runner::run::receipt::open_issuer(places).map_err(|error| match error {
        OpenError::Key(error) => key(&error),
        OpenError::Directory(error) => directory(&error),
    })
}

/// Reads the machine's clock; a clock before 1970 says 1970.
pub fn now_unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Advises what to do about a key that cannot be used.
pub fn key(error: &KeyError) -> Failure {
    let hint = match error {
        KeyError::Directory(inner) => return directory(inner),
        KeyError::Open { .. } => {
            "another user may have read or written it: move it away, and the next run makes a new one (its .pub file stays, so that older receipts can be verified)"
        }
        KeyError::Damaged { .. } => "move it away, and the next run makes a new one",
        KeyError::Io { .. } => "look at the state directory's disk and permissions, or set NEXUS_STATE_DIR",
        KeyError::Busy => "try again",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Advises what to do about a directory that cannot be used.
pub fn directory(error: &DirectoryError) -> Failure {
    let hint = match error {
        DirectoryError::Open { .. } => "if no other user can have written there: chmod 700 it; otherwise move it away",
        DirectoryError::Io { .. } => "look at the state directory's disk and permissions, or set NEXUS_STATE_DIR",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}
