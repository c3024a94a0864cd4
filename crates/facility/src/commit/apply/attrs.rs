//! Sets the attributes of directories, and the form that an entry needs before it is moved.

use super::Apply;
use super::stop::{Done, Stop};
use crate::beneath::{chmod, is_gone, is_other_mount, pin, split};
use crate::changes::Outside;
use crate::commit::ops::SetDir;
use crate::copy::times;
use crate::meta::{EntryType, Meta, stat};
use crate::xattr;
use nexus_model::ByteText;
use rustix::fs::{AtFlags, Gid, Uid};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

impl Apply<'_> {
    pub(super) fn strip(&mut self, path: &[u8], names: &[ByteText]) -> io::Result<()> {
        let (parent, name) = split(path);
        let dir = match self.layer_parents.get(parent) {
            Ok(dir) => dir,
            Err(error) if is_gone(&error) => return Ok(()),
            Err(error) => return Err(error),
        };
        strip_marks(dir, name, names)
    }

    pub(super) fn set_dir(&mut self, set: &SetDir) -> Done {
        let path = &set.path.0;
        let dir = match self.base.dir_by_force(path) {
            Ok(dir) => dir,
            // Other steps named the directory that another process removed or mounted over.
            Err(error) if (is_gone(&error) || is_other_mount(&error)) && set.was.is_none() => return Ok(()),
            Err(error) => return Err(Stop::blocked(error)),
        };
        let now = stat(dir.as_fd(), b"")?;
        if set.id != Some(now.id) {
            return if set.was.is_some() { Err(Stop::keep(Outside::Replaced)) } else { Ok(()) };
        }
        if let Some(was) = &set.was {
            // Opened up by us on the way, at most.
            let modes = [was.mode, was.mode | 0o700, set.mode, set.mode | 0o700];
            let mode = modes.contains(&now.mode);
            let owner = [(was.uid, was.gid), (set.uid, set.gid)].contains(&(now.uid, now.gid));
            if !mode || !owner {
                return Err(Stop::keep(Outside::Changed));
            }
        }
        self.faults.action();
        apply_dir_state(dir.as_fd(), set, &now).map_err(Stop::blocked)?;
        // The cached descriptor stays valid, but the directory may be closed to us now.
        self.parents.last = None;
        self.touch(path);
        Ok(())
    }
}

/// Sets the attributes of an open directory.
pub(crate) fn apply_dir_state(dir: BorrowedFd<'_>, set: &SetDir, now: &Meta) -> io::Result<()> {
    if let Some(attrs) = &set.attrs {
        for old in xattr::list(dir, b"")? {
            let content =
                matches!(crate::marks::attr(crate::marks::LayerMode::Root, &old), crate::marks::Attr::Copy(_));
            if content && !attrs.iter().any(|(name, _)| name.0 == old) {
                xattr::remove(dir, b"", &old)?;
            }
        }
        for (name, value) in attrs {
            xattr::set(dir, b"", &name.0, &value.0)?;
        }
    }
    if (now.uid, now.gid) != (set.uid, set.gid) {
        let (uid, gid) = (Uid::from_raw(set.uid), Gid::from_raw(set.gid));
        rustix::fs::chownat(dir, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    }
    chmod(dir, set.mode)?;
    if let Some(mtime) = set.mtime {
        let stamps = times(&Meta { mtime, ..now.clone() });
        rustix::fs::utimensat(rustix::fs::CWD, crate::beneath::proc_path(dir), &stamps, AtFlags::empty())?;
    }
    Ok(())
}

/// A directory that changes its parent has its `..` rewritten, for which its owner needs the write bit.
pub(crate) fn make_movable(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> io::Result<()> {
    let closed = meta.kind == EntryType::Directory && meta.mode & 0o700 != 0o700;
    if closed && !rustix::process::geteuid().is_root() {
        chmod(pin(dir, name)?.as_fd(), meta.mode | 0o700)?;
    }
    Ok(())
}

pub(crate) fn strip_marks(dir: BorrowedFd<'_>, name: &[u8], names: &[ByteText]) -> io::Result<()> {
    for one in names {
        match xattr::remove(dir, name, &one.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}
