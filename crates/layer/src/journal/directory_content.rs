//! A digest of the entries in a directory that a commit moves as a whole. Pure.
//!
//! A rollback removes such a directory from the workspace only if its entries still match the digest. The time stamps of
//! the directory itself cannot show that: a chmod, a move or the commit's own rename updates them.

use crate::meta::{EntryType, FileId, FsTime, Meta};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A digest of the entries below a directory: their number, a sum of hashes, and the latest ctime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryContent {
    /// Number of entries.
    pub entries: u64,
    /// The sum of the hashes of the entries' types, identities, sizes and modification times. Names need not be in it:
    /// a name that changes sets the modification time of its directory.
    pub sum: [u64; 4],
    /// The latest time of change among them.
    pub latest: FsTime,
    /// Entries whose time of change the commit itself sets, because it takes overlay's attributes off them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub stripped: BTreeSet<FileId>,
}

impl DirectoryContent {
    /// Adds an entry of the layer; `stripped` reports whether the commit changes its attributes.
    pub fn add(&mut self, meta: &Meta, stripped: bool) {
        self.count(meta);
        self.latest = self.latest.max(meta.ctime);
        if stripped {
            self.stripped.insert(meta.id);
        }
    }

    /// Adds an entry that was found in the directory.
    pub fn count(&mut self, meta: &Meta) {
        self.entries += 1;
        let hash = hash(meta);
        for (sum, part) in self.sum.iter_mut().zip(hash.as_bytes().chunks_exact(8)) {
            let part = part.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
            *sum = sum.wrapping_add(part);
        }
    }

    /// Reports whether the ctime of an entry shows a change after the record. The ctime of a file with several names
    /// proves nothing: moving another of its names updates it.
    #[must_use]
    pub fn is_late(&self, meta: &Meta) -> bool {
        meta.ctime > self.latest
            && (meta.kind == EntryType::Directory || meta.links <= 1)
            && !self.stripped.contains(&meta.id)
    }

    /// Reports whether the entries that were found are the recorded ones.
    #[must_use]
    pub fn is_same(&self, found: &Self) -> bool {
        (self.entries, self.sum) == (found.entries, found.sum)
    }
}

fn hash(meta: &Meta) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // The size of a directory is an affair of its file system.
    let size = if meta.kind == EntryType::Directory { 0 } else { meta.size };
    let born = meta.id.born.map(|born| (born.sec, born.nsec)).unwrap_or_default();
    for number in [meta.kind as u64, meta.id.ino, size, u64::from(born.1), u64::from(meta.mtime.nsec)] {
        hasher.update(&number.to_le_bytes());
    }
    for number in [born.0, meta.mtime.sec] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.finalize()
}
