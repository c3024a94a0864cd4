//! The time that a directory of the workspace has after steps acted in it. Pure.
//!
//! If no other layer is there and all of this one comes, a directory gets the time that it had in the run: build tools
//! compare times of directories too. Otherwise a step leaves the time of its call, as any save does. To set an older one
//! would tell the other layers of the workspace that the directory was moved: an ordinary user's layer knows that only by a
//! ctime after its start with an earlier mtime ([`crate::decide::outside`]). Two cases keep the time of the run all the same:
//!
//! * The run set it itself, as tar and rsync do.
//! * The directory looks moved before the commit already, and a layer may be older than that: this layer still has to
//!   find it.

use crate::meta::{FsTime, Meta};

/// Times that decide which time a directory gets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirTimes {
    /// Time at which the layer was made.
    pub(crate) started: FsTime,
    /// Time at which the oldest other layer of this workspace was made.
    pub(crate) first_other: FsTime,
    /// True if the workspace has no other layer, and no change of this one waits.
    pub(crate) is_alone: bool,
}

impl DirTimes {
    /// Returns the time to set for a directory that was `old` in the workspace and is `new` in the layer; `None` where
    /// the time of the steps stays.
    pub(crate) fn of(&self, old: &Meta, new: &Meta) -> Option<FsTime> {
        let is_set = new.mtime != old.mtime && (new.mtime <= self.started || new.mtime > new.ctime);
        let looks_moved = old.mtime < old.ctime && old.ctime > self.first_other;
        (self.is_alone || is_set || looks_moved).then_some(new.mtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{EntryType, FileId};

    fn at(sec: i64) -> FsTime {
        FsTime { sec, nsec: 0 }
    }

    fn directory(mtime: i64, ctime: i64) -> Meta {
        Meta {
            kind: EntryType::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: at(mtime),
            ctime: at(ctime),
            links: 2,
            id: FileId { ino: 7, born: None },
            dev: (0, 0),
            no_device: false,
            mount: 1,
            pinned: false,
        }
    }

    #[test]
    fn only_times_that_a_run_set_and_those_of_moved_directories_are_set() {
        let times = |first_other| DirTimes { started: at(10), first_other: at(first_other), is_alone: false };
        let (filled, moved) = (directory(5, 5), directory(5, 8));
        for (old, new, first_other, set) in [
            // A file was changed in place, made, and made with a time of its own for the directory.
            (&filled, directory(5, 12), 4, None),
            (&filled, directory(12, 12), 4, None),
            (&filled, directory(3, 12), 4, Some(3)),
            (&filled, directory(99, 12), 4, Some(99)),
            // It was moved after the other layer began, and before.
            (&moved, directory(5, 12), 7, Some(5)),
            (&moved, directory(12, 12), 7, Some(12)),
            (&moved, directory(5, 12), 8, None),
        ] {
            assert_eq!(times(first_other).of(old, &new), set.map(at), "{old:?} {new:?} {first_other}");
            let alone = DirTimes { is_alone: true, ..times(first_other) };
            assert_eq!(alone.of(old, &new), Some(new.mtime), "{old:?} {new:?} {first_other}, alone");
        }
    }
}
