//! Attributes of the entries of a directory that goes back: compared with kept ones, and set.

use crate::attributes;
use crate::build::stamps;
use crate::error::SnapshotError;
use crate::object::{Attributes, Entry, Node};
use nexus_beneath::meta::{EntryType, Meta, stat};
use nexus_beneath::{Doing as _, chmod, pin, proc_path};
use rustix::fs::{AtFlags, Gid, Uid};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

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

/// Opens a directory up for its owner, who can move it only then.
pub(super) fn open_up(dir: BorrowedFd<'_>, name: &[u8], present: &Entry, path: &[u8]) -> Result<(), SnapshotError> {
    let mode = present.attributes.mode;
    if !matches!(present.node, Node::Directory(_)) || mode & 0o200 != 0 || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Ok(pinned) = pin(dir, name) else { return Ok(()) };
    let meta = stat(pinned.as_fd(), b"").doing("look at", path)?;
    if is_as(&meta, present) {
        chmod(pinned.as_fd(), mode | 0o700).doing("open", path)?;
    }
    Ok(())
}

/// Sets attributes of an open file or directory, also one opened with `O_PATH`.
pub(super) fn set(entry: BorrowedFd<'_>, wanted: &Attributes) -> io::Result<()> {
    let meta = stat(entry, b"")?;
    attributes::make(entry, &wanted.extended)?;
    if rustix::process::geteuid().is_root() && (meta.uid, meta.gid) != (wanted.uid, wanted.gid) {
        let (user, group) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        rustix::fs::chownat(entry, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
    }
    // After the owner: a change of it takes the bits setuid and setgid away.
    chmod(entry, wanted.mode)?;
    Ok(rustix::fs::utimensat(rustix::fs::CWD, proc_path(entry), &stamps(wanted), AtFlags::empty())?)
}
