//! Copies single entries and whole trees between directory descriptors.
//!
//! Used where layer and workspace are on different file systems, for an upper directory that exists only as a
//! descriptor, and for files with several names. Owner (when root), mode, time, `user.*` attributes, ACLs and holes
//! are kept.

use crate::beneath::{
    Doing as _, IoFailure, Workspace, check_depth, chmod, join, names, open_file, pin, proc_path, split,
};
use crate::marks::{Attr, LayerMode, attr};
use crate::meta::{EntryType, Meta, stat};
use crate::opened::Opened;
use crate::xattr;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Which attributes a copy takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attrs {
    /// Content only; overlay's stay behind.
    Content(LayerMode),
    /// Everything: a copy of a layer that is still a layer.
    Layer(LayerMode),
}

impl Attrs {
    fn target(self, name: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Content(mode) => match attr(mode, name) {
                Attr::Copy(target) | Attr::Forged(target) => Some(target),
                Attr::Mark | Attr::Capability | Attr::Leave => None,
            },
            Self::Layer(mode) => match attr(mode, name) {
                // Capabilities are kept so that they are still seen, and parked.
                Attr::Mark | Attr::Copy(_) | Attr::Forged(_) | Attr::Capability => Some(name.to_vec()),
                Attr::Leave => None,
            },
        }
    }
}

/// Makes `to_name` a copy of an entry that is no directory. `to_name` must not exist; the caller renames it into place.
pub(crate) fn copy_entry(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    to_name: &[u8],
    attrs: Attrs,
) -> io::Result<()> {
    let meta = stat(from, name)?;
    match meta.kind {
        EntryType::File => {
            let source = open_readable(from, name, &meta)?;
            // Between stat and open it may have been swapped; what counts is what was opened.
            let meta = Meta { mode: meta.mode, ..stat(source.as_fd(), b"")? };
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let target = rustix::fs::openat(to, to_name, flags, Mode::from_raw_mode(0o600))?;
            copy_bytes(&source, &target, meta.size)?;
            copy_attrs(from, name, target.as_fd(), attrs)?;
            finish(target.as_fd(), &meta)
        }
        EntryType::Symlink => {
            let link = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(&*link, to, to_name)?;
            own(to, to_name, &meta)?;
            Ok(rustix::fs::utimensat(to, to_name, &times(&meta), AtFlags::SYMLINK_NOFOLLOW)?)
        }
        EntryType::Fifo => {
            rustix::fs::mkfifoat(to, to_name, Mode::from_raw_mode(0o600))?;
            copy_attrs_by_name(from, name, to, to_name, attrs)?;
            let made = pin(to, to_name)?;
            finish(made.as_fd(), &meta)
        }
        EntryType::Device if meta.is_whiteout() && matches!(attrs, Attrs::Layer(_)) => make_whiteout(to, to_name),
        EntryType::Directory | EntryType::Socket | EntryType::Device => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "cannot be copied"))
        }
    }
}

/// Overlay's mark that a name is gone; everybody may make it.
pub(crate) fn make_whiteout(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), 0)?)
}

/// Gives a new file the attributes of an entry of the layer, but not its content.
pub(crate) fn adorn(from: BorrowedFd<'_>, name: &[u8], target: BorrowedFd<'_>, attrs: Attrs) -> io::Result<()> {
    copy_attrs(from, name, target, attrs)?;
    finish(target, &stat(from, name)?)
}

fn open_readable(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> io::Result<OwnedFd> {
    match open_file(dir, name, OFlags::RDONLY) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let entry = pin(dir, name)?;
            chmod(entry.as_fd(), meta.mode | 0o400)?;
            let opened = open_file(dir, name, OFlags::RDONLY);
            chmod(entry.as_fd(), meta.mode)?;
            opened
        }
        other => other,
    }
}

fn copy_bytes(source: &OwnedFd, target: &OwnedFd, size: u64) -> io::Result<()> {
    rustix::fs::ftruncate(target, size)?;
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            // Nothing but a hole up to the end.
            Err(Errno::NXIO) => return Ok(()),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = match rustix::fs::seek(source, SeekFrom::Hole(data)) {
            Ok(end) => end.min(size),
            Err(Errno::NXIO) => return Ok(()),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => size,
            Err(error) => return Err(error.into()),
        };
        copy_range(source, target, data, end)?;
        if end <= data {
            return Ok(());
        }
        at = end;
    }
    Ok(())
}

fn copy_range(source: &OwnedFd, target: &OwnedFd, mut at: u64, end: u64) -> io::Result<()> {
    let mut by_kernel = true;
    let mut buffer = Vec::new();
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(usize::MAX).min(1 << 30);
        if by_kernel {
            let (mut from, mut to) = (at, at);
            match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), want) {
                Ok(0) => return Ok(()),
                Ok(moved) => at += moved as u64,
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => {
                    by_kernel = false;
                    buffer.resize(256 * 1024, 0);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        } else {
            let want = want.min(buffer.len());
            let read = rustix::io::pread(source, &mut buffer[..want], at)?;
            if read == 0 {
                return Ok(());
            }
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let written = rustix::io::pwrite(target, rest, at)?;
                rest = &rest[written..];
                at += written as u64;
            }
        }
    }
    Ok(())
}

fn copy_attrs(from: BorrowedFd<'_>, name: &[u8], target: BorrowedFd<'_>, attrs: Attrs) -> io::Result<()> {
    copy_attrs_by_name(from, name, target, b"", attrs)
}

fn copy_attrs_by_name(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    to_name: &[u8],
    attrs: Attrs,
) -> io::Result<()> {
    for one in xattr::list(from, name)? {
        if let Some(target) = attrs.target(&one) {
            xattr::set(to, to_name, &target, &xattr::get(from, name, &one)?).map_err(|error| {
                let target = String::from_utf8_lossy(&target);
                io::Error::new(error.kind(), format!("the extended attribute {target:?}: {error}"))
            })?;
        }
    }
    Ok(())
}

/// Owner, mode, time: in this order, because a change of the owner clears mode bits and every change of the content
/// sets the time.
fn finish(target: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
    let now = stat(target, b"")?;
    if (now.uid, now.gid) != (meta.uid, meta.gid) {
        rustix::fs::chownat(
            target,
            "",
            Some(Uid::from_raw(meta.uid)),
            Some(Gid::from_raw(meta.gid)),
            AtFlags::EMPTY_PATH,
        )?;
    }
    chmod(target, meta.mode)?;
    Ok(rustix::fs::utimensat(rustix::fs::CWD, proc_path(target), &times(meta), AtFlags::empty())?)
}

fn own(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> io::Result<()> {
    let now = stat(dir, name)?;
    if (now.uid, now.gid) != (meta.uid, meta.gid) {
        let (uid, gid) = (Uid::from_raw(meta.uid), Gid::from_raw(meta.gid));
        rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

/// Time stamps that set the last change and leave the last access.
pub(crate) fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime.sec, tv_nsec: i64::from(meta.mtime.nsec) },
    }
}

/// Decides about an entry that cannot be copied: an error ends the copy, otherwise the rest is copied.
pub(crate) type OnFailure<'a> = &'a mut dyn FnMut(IoFailure) -> Result<(), IoFailure>;

/// Copies the content of the directories `tops` of one tree into empty ones of the same paths, with names that share a
/// file. Sockets are left out. `opened` knows the modes of what an earlier try opened up.
pub(crate) fn copy_trees(
    from: &Workspace,
    to: &Workspace,
    tops: &[&[u8]],
    attrs: Attrs,
    opened: &mut Opened,
    on_failure: OnFailure<'_>,
) -> Result<(), IoFailure> {
    let mut links: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut stack: Vec<Vec<u8>> = tops.iter().map(|top| top.to_vec()).collect();
    let mut dirs: Vec<(Vec<u8>, Meta)> = Vec::new();
    while let Some(path) = stack.pop() {
        let open = || {
            check_depth(&path)?;
            let source = crate::remove::readable_by_force(from, &path)?;
            let (target, names) = (to.dir(&path)?, names(source.as_fd())?);
            io::Result::Ok((source, target, names))
        };
        let (source, target, names) = open().doing("copy the directory", &path)?;
        for name in names {
            let entry = join(&path, &name);
            let found = stat(source.as_fd(), &name).doing("copy", &entry)?;
            let mode = opened.mode(&entry, &found).doing("copy", &entry)?;
            let meta = Meta { mode, ..found.clone() };
            match meta.kind {
                EntryType::Directory => {
                    rustix::fs::mkdirat(target.as_fd(), &*name, Mode::from_raw_mode(0o700)).doing("copy", &entry)?;
                    let copied = copy_attrs_by_name(source.as_fd(), &name, target.as_fd(), &name, attrs);
                    copied.doing("copy", &entry).or_else(&mut *on_failure)?;
                    dirs.push((entry.clone(), meta));
                    stack.push(entry);
                }
                EntryType::Socket => {}
                EntryType::Device if !meta.is_whiteout() => {}
                _ => {
                    let first = links.get(&meta.id.ino).filter(|_| meta.links > 1);
                    let copied = || {
                        if let Some(first) = first {
                            let (parent, first_name) = split(first);
                            let parent = to.dir(parent)?;
                            let flags = AtFlags::empty();
                            return Ok(rustix::fs::linkat(parent.as_fd(), first_name, target.as_fd(), &*name, flags)?);
                        }
                        copy_entry(source.as_fd(), &name, target.as_fd(), &name, attrs)?;
                        if meta.mode == found.mode {
                            return Ok(());
                        }
                        chmod(pin(target.as_fd(), &name)?.as_fd(), meta.mode)
                    };
                    match copied().doing("copy", &entry) {
                        Ok(()) if first.is_none() => drop(links.insert(meta.id.ino, entry)),
                        Ok(()) => {}
                        Err(failure) => on_failure(failure)?,
                    }
                }
            }
        }
    }
    for (path, meta) in dirs.iter().rev() {
        to.dir(path).and_then(|dir| finish(dir.as_fd(), meta)).doing("copy", path)?;
    }
    Ok(())
}
