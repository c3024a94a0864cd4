//! Finds detached sandboxes for the commands.

use crate::failure::Failure;
use crate::failures;
use nexus_runner::session::store::{Entry, Store, StoreError};

/// Opens the store, after whatever was killed has been cleared up.
pub fn store() -> Result<Store, Failure> {
    let places = crate::host::ready_state_dir()?;
    crate::recovery::inspect(&places)?;
    let store = Store::open(&places, unreadable)?;
    store.clean()?;
    Ok(store)
}

/// Finds a sandbox by its id, its name or the start of its id.
pub fn find(text: &str) -> Result<(Store, Entry), Failure> {
    let store = Store::open(&crate::host::ready_state_dir()?, unreadable)?;
    let entry = store.find(text)?;
    Ok((store, entry))
}

/// Prints the error of a sandbox that cannot be read; the command goes on with the others.
pub fn unreadable(error: StoreError) {
    failures::print_failure(&error.into(), false);
}
