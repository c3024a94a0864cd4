//! Removes a displaced tree, entry by entry, and only what an inspection read.
//!
//! ```text
//!  look through all of it ─ new, changed, mounted, open for writing ─▶ it stays as a whole
//!     └ each entry ─▶ leaves its name ─▶ last look ─ changed, open for writing ─▶ gets its name back; the rest stays
//!                                           └ as it was read ─▶ removed
//! ```
//! A process that has a directory of the tree open works in it until its last name is gone. What it makes there has no entry in the list and
//! stays. What it writes to a file changes the times of the file, or is seen as a file that is open for writing; by its private name it
//! cannot open it any more.

use super::seen::Seen;
use crate::attributes;
use crate::error::SnapshotError;
use crate::scan::Widened;
use nexus_beneath::meta::{EntryType, Meta, stat, stat_if_there};
use nexus_beneath::writers::{Writers, writers};
use nexus_beneath::{Doing as _, LeaseCall, join, names, open_dir, pin};
use rustix::fs::{AtFlags, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// The name, but for a number, that an entry has for the moment before it is removed.
const LEAVING: &str = ".nexus-leaving-";
/// Longest name of a file, in bytes.
const MAX_NAME: usize = 255;
/// Names that are tried.
const TRIES: u32 = 99;

/// Removes displaced trees.
pub(super) struct Removing<'a> {
    /// The entries that were read, and whose content is kept.
    pub(super) seen: &'a mut Seen,
    /// Finds out which files a process has open for writing.
    pub(super) leases: Option<LeaseCall>,
    /// Called between any two changes; an error stops at once, as a kill would.
    pub(super) pause: &'a mut dyn FnMut() -> Result<(), SnapshotError>,
}

impl Removing<'_> {
    /// Removes the tree `name` of `dir`. Returns whether all of it is gone; else the rest stays, which holds everything that was not read.
    pub(super) fn remove(&mut self, dir: BorrowedFd<'_>, name: &[u8], at: &[u8]) -> Result<bool, SnapshotError> {
        let mount = stat(dir, b"").doing("look at", at)?.mount;
        let removed = match self.is_quiet(mount, dir, name, at) {
            Ok(true) => {
                (self.pause)()?;
                self.take(mount, dir, name, at)
            }
            other => other,
        };
        match removed {
            // What cannot be removed stays, too.
            Err(SnapshotError::Tree(_)) => Ok(false),
            other => other,
        }
    }

    /// Reports whether all of a tree is as it was read, and no process writes to it.
    fn is_quiet(&mut self, mount: u32, dir: BorrowedFd<'_>, name: &[u8], at: &[u8]) -> Result<bool, SnapshotError> {
        let Some(meta) = stat_if_there(dir, name).doing("look at", at)? else { return Ok(true) };
        if meta.mount != mount || !self.seen.may_go(&meta) {
            return Ok(false);
        }
        match meta.kind {
            EntryType::Directory => {
                let widened = Widened::new(dir, name, at, &meta, 0o500)?;
                let inner = open_dir(dir, name, OFlags::RDONLY).doing("open", at)?;
                for name in names(inner.as_fd()).doing("list", at)? {
                    if !self.is_quiet(mount, inner.as_fd(), &name, &join(at, &name))? {
                        return Ok(false);
                    }
                }
                if widened.is_some() {
                    drop(widened);
                    self.seen.touched(&meta, &stat(inner.as_fd(), b"").doing("look at", at)?);
                }
                Ok(true)
            }
            EntryType::File => Ok(!matches!(writers(self.leases, dir, name).doing("open", at)?, Writers::Some)),
            _ => Ok(true),
        }
    }

    fn take(&mut self, mount: u32, dir: BorrowedFd<'_>, name: &[u8], at: &[u8]) -> Result<bool, SnapshotError> {
        let Some(meta) = stat_if_there(dir, name).doing("look at", at)? else { return Ok(true) };
        if meta.mount != mount || !self.seen.may_go(&meta) {
            return Ok(false);
        }
        if meta.kind != EntryType::Directory {
            return self.take_entry(dir, name, at, &meta);
        }
        // Where it stays, it has its mode again.
        let _widened = Widened::new(dir, name, at, &meta, 0o700)?;
        let inner = open_dir(dir, name, OFlags::RDONLY).doing("open", at)?;
        for name in names(inner.as_fd()).doing("list", at)? {
            if !self.take(mount, inner.as_fd(), &name, &join(at, &name))? {
                return Ok(false);
            }
        }
        (self.pause)()?;
        // The removal of its entries set its times, which therefore tell nothing.
        let now = stat(inner.as_fd(), b"").doing("look at", at)?;
        let extended = attributes::read(inner.as_fd(), b"").doing("read the attributes of", at)?;
        if !self.seen.has_attributes(&now, &extended) {
            return Ok(false);
        }
        match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // Something came while it was emptied, or is mounted there.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY | Errno::NOTDIR) => Ok(false),
            Err(error) => Ok(Err(error).doing("remove", at)?),
        }
    }

    /// Removes an entry that is not a directory. It leaves its name first, and is looked at again.
    fn take_entry(&mut self, dir: BorrowedFd<'_>, name: &[u8], at: &[u8], meta: &Meta) -> Result<bool, SnapshotError> {
        (self.pause)()?;
        let Some(leaving) = leave_name(dir, name).doing("rename", at)? else { return Ok(true) };
        (self.pause)()?;
        let gone = self.unlink(dir, &leaving, meta).doing("remove", at);
        if !matches!(gone, Ok(true)) {
            // Where another process made a newer version meanwhile, both stay.
            renameat_with(dir, leaving.as_slice(), dir, name, RenameFlags::NOREPLACE).ok();
        }
        Ok(gone?)
    }

    /// Removes an entry that has left its name. Returns false where it is not as it was before.
    fn unlink(&mut self, dir: BorrowedFd<'_>, leaving: &[u8], before: &Meta) -> io::Result<bool> {
        // The descriptor stands for the file that is looked at, whatever has its name by then.
        let pinned = pin(dir, leaving)?;
        let is_file = before.kind == EntryType::File;
        let asked = if is_file { writers(self.leases, dir, leaving)? } else { Writers::Unknown };
        let now = stat(pinned.as_fd(), b"")?;
        let extended = if is_file { attributes::read(pinned.as_fd(), b"")? } else { Vec::new() };
        if matches!(asked, Writers::Some) || !self.seen.may_go_after_rename(before, &now, &extended) {
            return Ok(false);
        }
        rustix::fs::unlinkat(dir, leaving, AtFlags::empty())?;
        drop(asked);
        self.seen.removed(before, &stat(pinned.as_fd(), b"")?);
        Ok(true)
    }
}

/// Gives an entry a private name in its directory; `None` where it is gone.
pub(super) fn leave_name(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    for number in 0..TRIES {
        let short = format!("{LEAVING}{number}").into_bytes();
        let long = [&short, &b"-"[..], name].concat();
        // A kill then does not lose its own name.
        let leaving = if long.len() <= MAX_NAME { long } else { short };
        match renameat_with(dir, name, dir, leaving.as_slice(), RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(leaving)),
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("no name is free"))
}
