//! Messages about things of the suite that could not be removed.

use std::io;

/// Says what could not be removed.
pub(super) fn report(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("nexus-escape: left behind {what}: {error}");
    }
}
