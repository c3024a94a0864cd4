//! The identity of an entry when the commit was planned, and the two comparisons that a commit makes with it. Pure.
//!
//! A commit compares an entry right before the call that takes it from its place, and what came out right after the
//! call. The second comparison leaves the ctime out: `renameat2(2)` sets it on everything that it moves.

use crate::meta::{EntryType, FileId, FsTime, Meta};
use serde::{Deserialize, Serialize};

/// The identity and state of a workspace entry when the commit was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Type of the entry.
    pub kind: EntryType,
    /// Its inode and time of birth.
    pub id: FileId,
    /// Permission bits (`07777`).
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
    /// Number of names.
    pub links: u32,
    /// Last change of the content.
    pub mtime: FsTime,
    /// Last change of anything.
    pub ctime: FsTime,
}

impl From<&Meta> for Seen {
    fn from(meta: &Meta) -> Self {
        let Meta { kind, id, mode, size, links, mtime, ctime, .. } = *meta;
        Self { kind, id, mode, size, links, mtime, ctime }
    }
}

impl Seen {
    /// Compares before a call. `own` is the ctime that the commit itself last gave to this inode (through another of
    /// its names), and counts in place of the recorded one. A directory is compared by identity alone: the commit works
    /// in it, and its entries are compared one by one.
    #[must_use]
    pub fn is_untouched(&self, now: &Meta, own: Option<FsTime>) -> bool {
        if self.kind == EntryType::Directory {
            return now.kind == self.kind && now.id == self.id;
        }
        self.is_same_version(now) && now.mode == self.mode && now.ctime == own.unwrap_or(self.ctime)
    }

    /// Compares after a call: the same inode with the same content.
    #[must_use]
    pub fn is_same_version(&self, now: &Meta) -> bool {
        let same = now.kind == self.kind && now.id == self.id;
        same && (self.kind == EntryType::Directory || (now.size == self.size && now.mtime == self.mtime))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(kind: EntryType) -> Meta {
        let time = FsTime { sec: 5, nsec: 0 };
        let id = FileId { ino: 7, born: Some(time) };
        Meta {
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: 3,
            mtime: time,
            ctime: time,
            links: 1,
            id,
            dev: (0, 0),
            no_device: false,
            mount: 1,
            pinned: false,
        }
    }

    #[test]
    fn every_difference_counts_before_a_call() {
        let old = meta(EntryType::File);
        let seen = Seen::from(&old);
        assert!(seen.is_untouched(&old, None));
        let later = FsTime { sec: 6, nsec: 0 };
        let changed = [
            Meta { kind: EntryType::Symlink, ..old.clone() },
            Meta { mode: 0o600, ..old.clone() },
            Meta { size: 4, ..old.clone() },
            Meta { mtime: later, ..old.clone() },
            Meta { ctime: later, ..old.clone() },
            Meta { id: FileId { ino: 8, ..old.id }, ..old.clone() },
            Meta { id: FileId { born: None, ..old.id }, ..old.clone() },
        ];
        for now in changed {
            assert!(!seen.is_untouched(&now, None), "{now:?}");
        }
        let linked = Meta { ctime: later, links: 2, ..old };
        assert!(seen.is_untouched(&linked, Some(later)), "the commit itself changed another name of the file");
    }

    #[test]
    fn the_ctime_does_not_count_after_a_call() {
        let old = meta(EntryType::File);
        let seen = Seen::from(&old);
        let later = FsTime { sec: 6, nsec: 0 };
        assert!(seen.is_same_version(&Meta { ctime: later, ..old.clone() }));
        assert!(!seen.is_same_version(&Meta { mtime: later, ..old.clone() }));
        assert!(!seen.is_same_version(&Meta { size: 9, ..old }));
    }

    #[test]
    fn a_directory_is_compared_by_identity() {
        let old = meta(EntryType::Directory);
        let seen = Seen::from(&old);
        let later = FsTime { sec: 6, nsec: 0 };
        assert!(seen.is_untouched(&Meta { ctime: later, mtime: later, mode: 0o700, ..old.clone() }, None));
        assert!(!seen.is_untouched(&Meta { id: FileId { ino: 8, ..old.id }, ..old }, None));
    }
}
