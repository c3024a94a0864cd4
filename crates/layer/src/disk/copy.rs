//! Copies single entries between directory descriptors.
//!
//! Used where layer and workspace are on different file systems, for an upper directory that exists only as a
//! descriptor, and for files with several names. Owner (when root), mode, time, `user.*` attributes, ACLs and holes
//! are kept.

use crate::beneath::{chmod, open_file, pin, proc_path, unlink_if_there};
use crate::disk::xattr;
use crate::entries::marks::{Attr, LayerMode, attr};
use crate::faults::Faults;
use crate::meta::{EntryType, Meta, stat};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Selection of the attributes that a copy takes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attrs {
    /// Content only; overlay's stay behind.
    Content(LayerMode),
    /// Everything: a copy of a layer that is still a layer.
    Layer(LayerMode),
    /// The same without overlay's own.
    Unmarked(LayerMode),
    /// Only overlay's own.
    Marks(LayerMode),
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
            Self::Unmarked(mode) => Self::Layer(mode).target(name).filter(|_| attr(mode, name) != Attr::Mark),
            Self::Marks(mode) => (attr(mode, name) == Attr::Mark).then(|| name.to_vec()),
        }
    }
}

/// Makes `to_name` a copy of an entry that is not a directory. `to_name` must not exist; the caller renames it into
/// place.
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
            let (target, meta) = copy_content(from, name, &meta, to, to_name)?;
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

/// Names a file until its content is whole.
pub(crate) const STAGED: &[u8] = b"copying";

/// Holds one file at a time while its content arrives.
#[derive(Clone, Copy)]
pub(crate) struct CopyStage<'a> {
    /// A directory of the copy's file system that no reader of a layer looks into.
    pub(crate) dir: BorrowedFd<'a>,
    /// The faults of a test.
    pub(crate) faults: &'a Faults,
}

/// Makes `name` in `to` a copy of an entry that is not a directory, for a tree that is nowhere else. A file gets its
/// name only when its content is whole: until then it is [`STAGED`] in `stage`, and after an error it is removed. A
/// file keeps a whole content also when an attribute cannot be copied, which is an error as well.
pub(crate) fn copy_whole(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    stage: CopyStage<'_>,
    attrs: Attrs,
) -> io::Result<()> {
    let CopyStage { dir: stage, faults } = stage;
    let meta = stat(from, name)?;
    if meta.kind != EntryType::File {
        return copy_entry(from, name, to, name, attrs);
    }
    unlink_if_there(stage, STAGED)?;
    faults.between_calls();
    let copied = copy_content(from, name, &meta, stage, STAGED).and_then(|(target, meta)| {
        let attributes = copy_attrs(from, name, target.as_fd(), attrs).and_then(|()| finish(target.as_fd(), &meta));
        faults.between_calls();
        rustix::fs::renameat(stage, STAGED, to, name)?;
        Ok(attributes)
    });
    copied.unwrap_or_else(|error| {
        // The error of the copy is the one to report. What stays has no name that a reader of the layer sees.
        unlink_if_there(stage, STAGED).ok();
        Err(error)
    })
}

/// Copies the content of a file to a new one. Returns it with what is known of the source.
fn copy_content(
    from: BorrowedFd<'_>,
    name: &[u8],
    meta: &Meta,
    to: BorrowedFd<'_>,
    to_name: &[u8],
) -> io::Result<(OwnedFd, Meta)> {
    let source = open_readable(from, name, meta)?;
    // Between stat and open it may have been swapped; what counts is what was opened.
    let meta = Meta { mode: meta.mode, ..stat(source.as_fd(), b"")? };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = rustix::fs::openat(to, to_name, flags, Mode::from_raw_mode(0o600))?;
    copy_bytes(&source, &target, meta.size)?;
    Ok((target, meta))
}

/// Makes overlay's mark that a name is gone; everybody may make it.
pub(crate) fn make_whiteout(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::mknodat(dir, name, FileType::CharacterDevice, Mode::empty(), 0)?)
}

/// Gives a new file the attributes of an entry of the layer, but not its content.
pub(crate) fn apply_metadata(
    from: BorrowedFd<'_>,
    name: &[u8],
    target: BorrowedFd<'_>,
    attrs: Attrs,
) -> io::Result<()> {
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

pub(crate) fn copy_attrs_by_name(
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

/// Sets owner, mode and time: in this order, because a change of the owner clears mode bits and every change of the
/// content sets the time.
pub(crate) fn finish(target: BorrowedFd<'_>, meta: &Meta) -> io::Result<()> {
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

/// Returns time stamps that set the last change and leave the last access.
pub(crate) fn times(meta: &Meta) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: meta.mtime.sec, tv_nsec: i64::from(meta.mtime.nsec) },
    }
}
