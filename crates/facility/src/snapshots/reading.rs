//! Reads trees of facilities.

use super::error::StateError;
use super::history::History;
use nexus_snapshot::{Cache, FsTime, Most, ScanOptions, Scanned, SnapshotError, Store, Writer, scan};
use rustix::fd::BorrowedFd;
use std::time::SystemTime;

/// Is called during long work, with the entries and bytes so far.
pub type Listener<'a> = &'a mut dyn FnMut(u64, u64);

/// The most that one snapshot reads. A disk of today that is full is below it.
const MAX_READ: Most = Most { files: u64::MAX, bytes: 2 << 40, apparent: 32 << 40 };

/// Reads a tree, with a bound: a few files with data in many holes would be read for days.
pub(super) fn read(
    tree: BorrowedFd<'_>,
    writer: &mut Writer<'_>,
    before: &Cache,
    tell: Listener<'_>,
) -> Result<Scanned, SnapshotError> {
    let mut reported = |entries: u64, bytes: u64| {
        tell(entries, bytes);
        Ok(())
    };
    scan(tree, writer, before, now().0, ScanOptions { most: Some(MAX_READ), ..ScanOptions::default() }, &mut reported)
}

/// Reads a tree into the store. Returns the bytes that were new there, too.
pub(super) fn scanned(
    history: &History,
    store: &mut Store,
    tree: BorrowedFd<'_>,
    tell: Listener<'_>,
) -> Result<(Scanned, u64), StateError> {
    let before = Cache::read(&history.cache());
    let mut writer = Writer::new(store);
    let scanned = read(tree, &mut writer, &before, tell)?;
    let new_bytes = writer.new_bytes();
    writer.finish()?;
    Ok((scanned, new_bytes))
}

/// Returns the time as file systems have it, and in milliseconds since 1970. A clock before 1970 says 1970.
pub(super) fn now() -> (FsTime, u64) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (FsTime { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }, since.as_millis() as u64)
}
