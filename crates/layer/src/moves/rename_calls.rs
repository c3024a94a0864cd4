//! The calls by which a commit moves entries. None of them ever replaces anything that it has not named.
//!
//! `renameat2(2)` with RENAME_NOREPLACE and RENAME_EXCHANGE does both in one step. File systems without the flags (NFS,
//! 9p, many FUSE) get a link and an unlink for a file, and a side name for an exchange.

use crate::faults::Faults;
use crate::meta::{EntryType, stat, stat_if_there};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// A name in an open directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a [u8],
}

/// Answer whether an entry reached a free name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// The entry has the name.
    Yes,
    /// The name is taken, and nothing was done.
    Occupied,
}

/// Reports whether an error comes from a file system without the flags of renameat2(2).
fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Calls renameat2(2) with a flag, or answers as a file system that has none.
fn rename_to_free(from: Spot<'_>, to: Spot<'_>, faults: &Faults) -> rustix::io::Result<()> {
    faults.between_calls();
    if !faults.has_rename_flags() {
        return Err(Errno::INVAL);
    }
    rustix::fs::renameat_with(from.dir, from.name, to.dir, to.name, RenameFlags::NOREPLACE)
}

/// Moves an entry to a name that must be free.
pub(crate) fn move_to_free(from: Spot<'_>, to: Spot<'_>, faults: &Faults) -> io::Result<Moved> {
    match rename_to_free(from, to, faults) {
        Ok(()) => Ok(Moved::Yes),
        Err(Errno::EXIST) => Ok(Moved::Occupied),
        Err(error) if is_missing(error) => without_flags(from, to, faults),
        Err(error) => Err(error.into()),
    }
}

/// Moves an entry out of the workspace, to a name in a directory that no other process enters and that must be free.
///
/// Without the flags this is a plain rename: a link and an unlink would unlink what another process saved in between.
pub(crate) fn move_out(from: Spot<'_>, to: Spot<'_>, faults: &Faults) -> io::Result<Moved> {
    match rename_to_free(from, to, faults) {
        Ok(()) => Ok(Moved::Yes),
        Err(Errno::EXIST) => Ok(Moved::Occupied),
        Err(error) if is_missing(error) => {
            if stat_if_there(to.dir, to.name)?.is_some() {
                return Ok(Moved::Occupied);
            }
            faults.between_calls();
            rustix::fs::renameat(from.dir, from.name, to.dir, to.name)?;
            Ok(Moved::Yes)
        }
        Err(error) => Err(error.into()),
    }
}

fn without_flags(from: Spot<'_>, to: Spot<'_>, faults: &Faults) -> io::Result<Moved> {
    if stat(from.dir, from.name)?.kind == EntryType::Directory {
        // rename(2) replaces nothing here but an empty directory that was made since the look.
        if stat_if_there(to.dir, to.name)?.is_some() {
            return Ok(Moved::Occupied);
        }
        faults.between_calls();
        return match rustix::fs::renameat(from.dir, from.name, to.dir, to.name) {
            Ok(()) => Ok(Moved::Yes),
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => Ok(Moved::Occupied),
            Err(error) => Err(error.into()),
        };
    }
    match rustix::fs::linkat(from.dir, from.name, to.dir, to.name, AtFlags::empty()) {
        Ok(()) => {}
        // The link of an earlier try that was interrupted before its unlink.
        Err(Errno::EXIST) if is_same(from, to)? => {}
        Err(Errno::EXIST) => return Ok(Moved::Occupied),
        Err(error) => return Err(error.into()),
    }
    faults.between_calls();
    rustix::fs::unlinkat(from.dir, from.name, AtFlags::empty())?;
    Ok(Moved::Yes)
}

fn is_same(one: Spot<'_>, other: Spot<'_>) -> io::Result<bool> {
    let other = stat_if_there(other.dir, other.name)?;
    Ok(other.is_some_and(|other| stat(one.dir, one.name).is_ok_and(|one| one.id == other.id && one.dev == other.dev)))
}

/// The result of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exchanged {
    /// Each entry has the other's place.
    Yes,
    /// The file system cannot do it in one step; nothing was done.
    Unsupported,
    /// One of the two names has no entry, and nothing was done.
    Gone,
}

/// Exchanges two entries of any types in one step.
pub(crate) fn exchange(one: Spot<'_>, other: Spot<'_>, faults: &Faults) -> io::Result<Exchanged> {
    faults.between_calls();
    if !faults.has_rename_flags() {
        return Ok(Exchanged::Unsupported);
    }
    match rustix::fs::renameat_with(one.dir, one.name, other.dir, other.name, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(Exchanged::Yes),
        Err(Errno::NOENT) => Ok(Exchanged::Gone),
        Err(error) if is_missing(error) => Ok(Exchanged::Unsupported),
        Err(error) => Err(error.into()),
    }
}
