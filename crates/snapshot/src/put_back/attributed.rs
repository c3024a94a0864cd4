//! Attributes of the entries of a directory that goes back: compared with kept ones, and set.

use crate::attributes;
use crate::build::stamps;
use crate::error::SnapshotError;
use crate::object::{Attributes, Entry, Node};
use nexus_beneath::meta::{EntryType, Meta, stat};
use nexus_beneath::{chmod, pin, proc_path};
use rustix::fs::{AtFlags, Gid, Uid};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Reports whether these are the attributes of the user that were kept. Access lists follow the mode.
pub(super) fn has(extended: &attributes::Extended, kept: &Attributes) -> bool {
    fn of_user(all: &attributes::Extended) -> impl Iterator<Item = &(Vec<u8>, Vec<u8>)> {
        all.iter().filter(|(name, _)| name.starts_with(b"user."))
    }
    of_user(extended).eq(of_user(&kept.extended))
}

/// Reports whether an entry has the attributes of a kept one.
pub(super) fn is_as(meta: &Meta, kept: &Entry) -> bool {
    let kind = match kept.node {
        Node::File(_) | Node::Same(_) => EntryType::File,
        Node::Directory(_) => EntryType::Directory,
        Node::Link(_) => EntryType::Symlink,
    };
    let Attributes { mode, uid, gid, mtime, .. } = &kept.attributes;
    meta.kind == kind
        && (meta.mode, meta.uid, meta.gid, (meta.mtime.sec, meta.mtime.nsec)) == (*mode, *uid, *gid, *mtime)
}

/// Reports whether an error is about one entry alone: whatever else goes back can go back all the same.
pub(super) fn is_of_entry(error: &io::Error) -> bool {
    const ALL: [Errno; 6] = [Errno::ACCESS, Errno::PERM, Errno::ROFS, Errno::NOTSUP, Errno::NOSPC, Errno::DQUOT];
    Errno::from_io_error(error).is_some_and(|errno| ALL.contains(&errno))
}

/// Returns the error of a call on one entry, if it is about that alone.
pub(super) fn of_entry(error: &SnapshotError) -> Option<&io::Error> {
    match error {
        SnapshotError::Tree(failure) => Some(&failure.source).filter(|error| is_of_entry(error)),
        _ => None,
    }
}

/// An entry whose mode was widened for its owner.
pub(super) struct Opened {
    entry: OwnedFd,
    mode: u32,
}

impl Opened {
    /// Widens the mode of an open entry, also one opened with `O_PATH`. `None` where it is wide enough, or this user is root or not its owner.
    fn new(entry: BorrowedFd<'_>, meta: &Meta, rights: u32) -> io::Result<Option<Self>> {
        let user = rustix::process::geteuid();
        if user.is_root() || user.as_raw() != meta.uid || meta.mode & rights == rights {
            return Ok(None);
        }
        let entry = entry.try_clone_to_owned()?;
        chmod(entry.as_fd(), meta.mode | rights)?;
        Ok(Some(Self { entry, mode: meta.mode }))
    }

    /// Gives the entry its mode again.
    pub(super) fn close(&self) {
        // It had this mode a moment ago; where it cannot be set now, the entry is gone.
        chmod(self.entry.as_fd(), self.mode).ok();
    }
}

/// Opens a directory up for its owner, who can move it only then.
pub(super) fn open_up(dir: BorrowedFd<'_>, name: &[u8], present: &Entry) -> io::Result<Option<Opened>> {
    let mode = present.attributes.mode;
    if !matches!(present.node, Node::Directory(_)) || mode & 0o200 != 0 {
        return Ok(None);
    }
    let Ok(pinned) = pin(dir, name) else { return Ok(None) };
    let meta = stat(pinned.as_fd(), b"")?;
    if is_as(&meta, present) { Opened::new(pinned.as_fd(), &meta, 0o700) } else { Ok(None) }
}

/// Reads the attributes of an open entry, also one opened with `O_PATH` whose owner may not read it.
pub(super) fn extended_of(entry: BorrowedFd<'_>, meta: &Meta) -> io::Result<attributes::Extended> {
    match attributes::read(entry, b"") {
        Err(error) if error.raw_os_error() == Some(Errno::ACCESS.raw_os_error()) => {
            let Some(opened) = Opened::new(entry, meta, 0o400)? else { return Err(error) };
            let read = attributes::read(entry, b"");
            opened.close();
            read
        }
        read => read,
    }
}

/// Sets those attributes of an open file or directory that differ, also of one opened with `O_PATH`. After an error it has its mode again.
pub(super) fn set(entry: BorrowedFd<'_>, wanted: &Attributes) -> io::Result<()> {
    let meta = stat(entry, b"")?;
    let has_all = extended_of(entry, &meta)? == wanted.extended;
    // An attribute of the user is set by those alone who may write the file.
    let opened = if has_all { None } else { Opened::new(entry, &meta, 0o600)? };
    let done = set_all(entry, &meta, wanted, has_all);
    if done.is_err() {
        opened.iter().for_each(Opened::close);
    }
    done
}

fn set_all(entry: BorrowedFd<'_>, meta: &Meta, wanted: &Attributes, has_all: bool) -> io::Result<()> {
    if !has_all {
        attributes::make(entry, &wanted.extended)?;
    }
    if rustix::process::geteuid().is_root() && (meta.uid, meta.gid) != (wanted.uid, wanted.gid) {
        let (user, group) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        rustix::fs::chownat(entry, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    // After the owner: a change of it takes the bits setuid and setgid away.
    let now = stat(entry, b"")?;
    if now.mode != wanted.mode {
        chmod(entry, wanted.mode)?;
    }
    if (now.mtime.sec, now.mtime.nsec) == wanted.mtime {
        return Ok(());
    }
    Ok(rustix::fs::utimensat(rustix::fs::CWD, proc_path(entry), &stamps(wanted), AtFlags::empty())?)
}
