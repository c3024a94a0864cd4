//! Finds the names of one file in a directory that moves.
//!
//! The overlay parts the names of a file of the layer below with the first change to one of them, and a link is such a change. So
//! the helper links the second name at the new place to the first one there. If it takes two files for one, the content of one of them
//! is gone, and what is written to the other one later is written to both.
//!
//! | file system of the workspace | one file |
//! |---|---|
//! | counts its files once (ext4, XFS, tmpfs) | the same device and inode |
//! | counts in each subvolume (Btrfs, bcachefs), Linux 6.10 or later | the same subvolume as well |
//! | the same, older Linux | not known: a snapshot agrees with its original in all that can be asked |
//! | any other | not known |
//!
//! Without that knowledge each name becomes a file of its own, as after a write.

use super::entries::{MAX_DEPTH, directory, entry, facts, is_directory, join, names, subvolume};
use nexus_model::moving::Numbers;
use rustix::fd::OwnedFd;
use rustix::fs::Statx;
use rustix::io::Errno;
use std::collections::HashMap;

/// One file at one moment, however many names it has. An overlay shows files of the workspace and of the layer, so that a number may be
/// used twice. The time of the last change counts as well: while the directory moves, another process may put another file to a
/// number.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct File {
    device: (u32, u32),
    inode: u64,
    subvolume: Option<u64>,
    names: u32,
    owner: (u32, u32),
    changed: (i64, u32),
    facts: u64,
}

/// The names of the files with several, before anything was moved.
pub(super) struct Names {
    numbers: Numbers,
    files: HashMap<Vec<u8>, File>,
    /// The kernel has reported a subvolume.
    reports_subvolumes: bool,
}

impl Names {
    pub(super) fn of(top: &OwnedFd, numbers: Numbers) -> Result<Self, Errno> {
        let mut found = Self { numbers, files: HashMap::new(), reports_subvolumes: false };
        found.look_below(top, &[], 0)?;
        Ok(found)
    }

    fn look_below(&mut self, at: &OwnedFd, path: &[u8], depth: usize) -> Result<(), Errno> {
        if depth > MAX_DEPTH {
            return Err(Errno::XDEV);
        }
        for name in names(at)? {
            let found = entry(at, &name)?;
            let path = join(path, &name);
            self.reports_subvolumes |= subvolume(&found).is_some();
            if is_directory(&found) {
                self.look_below(&directory(at, &name)?, &path, depth + 1)?;
            } else if found.stx_nlink > 1 {
                self.files.insert(path, File::of(&found));
            }
        }
        Ok(())
    }

    /// Returns the file at a path, if it is there still and is distinct from all others. A link to it changes its times.
    pub(super) fn file(&self, path: &[u8], found: &Statx) -> Option<&File> {
        let now = File::of(found);
        let is_same =
            |file: &&File| (file.device, file.inode, file.subvolume) == (now.device, now.inode, now.subvolume);
        self.files.get(path).filter(is_same).filter(|_| is_distinct(self.numbers, self.reports_subvolumes))
    }
}

/// Reports whether the numbers of a file are those of no other one. A kernel that reports subvolumes does so for each file, but for
/// those of a layer on a file system that has none.
fn is_distinct(numbers: Numbers, reports_subvolumes: bool) -> bool {
    match numbers {
        Numbers::OfFileSystem => true,
        Numbers::OfSubvolume => reports_subvolumes,
        Numbers::Unknown => false,
    }
}

impl File {
    fn of(found: &Statx) -> Self {
        Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            subvolume: subvolume(found),
            names: found.stx_nlink,
            owner: (found.stx_uid, found.stx_gid),
            changed: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
            facts: facts(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_distinguished_only_where_their_numbers_are_their_own() {
        for (numbers, without, with) in
            [(Numbers::OfFileSystem, true, true), (Numbers::OfSubvolume, false, true), (Numbers::Unknown, false, false)]
        {
            assert_eq!(is_distinct(numbers, false), without, "{numbers:?}");
            assert_eq!(is_distinct(numbers, true), with, "{numbers:?}");
        }
    }
}
