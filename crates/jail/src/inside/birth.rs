//! Identifies files of the host, and tells those that were made while a sandbox is set up from those that another process moved
//! meanwhile. The time of birth alone tells: a rename gives a file another ctime (rename(2)), as a new name or another mode does.

use nexus_model::plan::FileId;
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Stat, StatxFlags, Timespec};
use std::collections::BTreeSet;

/// The time of birth of a file, in seconds and nanoseconds since 1970.
pub(super) type Birth = (i64, u32);

/// An open file: its number, which another one may have after it, and its birth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    id: FileId,
    birth: Option<Birth>,
}

impl Identity {
    /// Identifies an open file.
    pub(super) fn of(file: impl AsFd) -> rustix::io::Result<Self> {
        let stat = rustix::fs::fstat(&file)?;
        Ok(Self { id: id(&stat), birth: birth(file) })
    }
}

/// Returns the device and inode of an open file.
pub(super) fn id(stat: &Stat) -> FileId {
    FileId { device: stat.st_dev, inode: stat.st_ino }
}

/// `f_type` of overlayfs, which gives a file of a lower layer the birth of its copy when a rename or another change copies it up.
const OVERLAY: u64 = 0x794c_7630;

/// Returns the time at which an open file was made; `None` on a file system that does not keep it.
fn birth(file: impl AsFd) -> Option<Birth> {
    if rustix::fs::fstatfs(&file).ok()?.f_type as u64 == OVERLAY {
        return None;
    }
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let has_birth = found.stx_mask & StatxFlags::BTIME.bits() != 0;
    has_birth.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// The first search: when it was, and what it found.
pub(super) struct First<'a> {
    pub(super) since: Birth,
    pub(super) found: &'a BTreeSet<FileId>,
}

impl First<'_> {
    /// Reports whether an open file was made after the first search.
    pub(super) fn is_before(&self, file: impl AsFd, stat: &Stat) -> bool {
        let changed =
            Timespec { tv_sec: stat.st_ctime, tv_nsec: i64::try_from(stat.st_ctime_nsec).unwrap_or_default() };
        self.is_before_one(id(stat), birth(file), changed)
    }

    /// Without a birth a file that was found is never new. For any other one the ctime has to tell.
    fn is_before_one(&self, id: FileId, birth: Option<Birth>, changed: Timespec) -> bool {
        match birth {
            Some(birth) => birth >= self.since,
            None => {
                (changed.tv_sec, changed.tv_nsec) >= (self.since.0, self.since.1.into()) && !self.found.contains(&id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGED: Timespec = Timespec { tv_sec: 20, tv_nsec: 5 };

    #[test]
    fn a_birth_tells_what_is_new_and_no_change_does() {
        let (one, none) = (FileId { device: 1, inode: 2 }, BTreeSet::new());
        let first = First { since: (10, 7), found: &none };
        for (birth, is_new) in [((10, 6), false), ((9, 8), false), ((10, 7), true), ((11, 0), true)] {
            assert_eq!(first.is_before_one(one, Some(birth), CHANGED), is_new, "{birth:?}");
        }
    }

    #[test]
    fn without_a_birth_what_was_found_is_never_new() {
        let (one, other) = (FileId { device: 1, inode: 2 }, FileId { device: 1, inode: 3 });
        let found = BTreeSet::from([one]);
        let first = |since| First { since, found: &found };
        assert!(!first((10, 0)).is_before_one(one, None, CHANGED));
        assert!(first((10, 0)).is_before_one(other, None, CHANGED));
        assert!(first((20, 5)).is_before_one(other, None, CHANGED));
        assert!(!first((20, 6)).is_before_one(other, None, CHANGED));
    }

    #[test]
    fn an_inode_that_is_used_again_is_another_file() {
        let top = tempfile::tempdir().unwrap();
        let open =
            |name: &str| rustix::fs::open(top.path().join(name), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        std::fs::create_dir(top.path().join("a")).unwrap();
        let a = Identity::of(open("a").unwrap()).unwrap();
        std::fs::rename(top.path().join("a"), top.path().join("b")).unwrap();
        assert_eq!(Identity::of(open("b").unwrap()).unwrap(), a, "a rename leaves it the same");
        let later = a.birth.map(|birth| (birth.0 + 1, birth.1));
        assert!(later.is_none() || Identity { birth: later, ..a } != a);
    }
}
