//! The receipts and keys of this state directory.

use crate::advice::receipts as advice;
use crate::failure::Failure;
use nexus_receipt::verify::ReadError;
use nexus_receipt::{KeyDirectory, Known, Store};

/// Opens the receipts and keys of this state directory.
pub fn local() -> Result<(Store, Known), Failure> {
    let places = crate::host::ready_state_dir()?;
    let known = KeyDirectory::open(&places.state).and_then(|keys| keys.known());
    let store = Store::open(&places.state).map_err(|error| advice::directory(&error))?;
    Ok((store, known.map_err(|error| advice::key(&error))?))
}

/// Makes the failure for a receipt or key that cannot be read.
pub fn nothing(error: &ReadError) -> Failure {
    Failure::usage(error.code(), error.to_string(), "nexus log lists runs")
}
