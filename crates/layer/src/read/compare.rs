//! Compares an entry of the layer with the one that the workspace has already.

use crate::beneath::{Doing as _, IoFailure, Workspace, open_file};
use crate::disk::xattr::{self, Attrs};
use crate::entries::marks::{Attr, LayerMode, attr};
use crate::meta::{EntryType, Meta};
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Larger files count as different without a look, in bytes: a sparse file costs a run nothing to make, and would cost
/// the host the reading of its whole length.
pub(crate) const MAX_COMPARED: u64 = 64 << 20;

/// Number of bytes that one reading of a layer compares; the files after that count as different.
pub(crate) const BUDGET: u64 = 2 << 30;

/// Reads the attributes of a directory of the workspace that a commit would set.
pub(crate) fn base_attrs(base: &Workspace, path: &[u8]) -> Result<Attrs, IoFailure> {
    let dir = base.dir(path).doing("open", path)?;
    attrs_of(dir.as_fd()).doing("read the attributes of", path)
}

/// Reads the attributes of an open directory of the workspace that a commit would set.
pub(crate) fn attrs_of(dir: BorrowedFd<'_>) -> io::Result<Attrs> {
    let mut attrs = Attrs::new();
    for one in xattr::list(dir, b"")? {
        if content_attr(&one) {
            let value = xattr::get(dir, b"", &one)?;
            attrs.push((one, value));
        }
    }
    attrs.sort();
    Ok(attrs)
}

/// Reports whether an entry and what it covers have the same content, and whether they have the same attributes too.
pub(crate) fn compare(
    mode: LayerMode,
    upper: BorrowedFd<'_>,
    base: BorrowedFd<'_>,
    name: &[u8],
    (new, old): (&Meta, &Meta),
    budget: &mut u64,
) -> io::Result<(bool, bool)> {
    let content = match old.kind {
        EntryType::File if old.size == new.size && old.mtime == new.mtime => {
            let is_within = old.size <= MAX_COMPARED && old.size <= *budget;
            if is_within {
                *budget -= old.size;
            }
            is_within && same_bytes(upper, base, name, name)?
        }
        EntryType::Symlink => {
            rustix::fs::readlinkat(upper, name, Vec::new())? == rustix::fs::readlinkat(base, name, Vec::new())?
        }
        EntryType::Fifo => true,
        EntryType::File | EntryType::Directory | EntryType::Socket | EntryType::Device => false,
    };
    if !content {
        return Ok((false, false));
    }
    Ok((true, same_attrs(mode, upper, base, name)?))
}

/// Reports whether an entry of the layer and one of the workspace have the same attributes.
pub(crate) fn same_attrs(
    mode: LayerMode,
    upper: BorrowedFd<'_>,
    base: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<bool> {
    let of = |dir: BorrowedFd<'_>, layer: bool| -> io::Result<Attrs> {
        let mut attrs = Attrs::new();
        for one in xattr::list(dir, name)? {
            let target = match attr(mode, &one) {
                Attr::Copy(target) | Attr::Forged(target) if layer => target,
                _ if !layer && content_attr(&one) => one.clone(),
                _ => continue,
            };
            attrs.push((target, xattr::get(dir, name, &one)?));
        }
        attrs.sort();
        Ok(attrs)
    };
    Ok(of(upper, true)? == of(base, false)?)
}

fn content_attr(name: &[u8]) -> bool {
    // In the workspace there are no marks; whatever is in overlay's name space is an attribute of the user's own.
    name.starts_with(b"user.") || matches!(attr(LayerMode::Root, name), Attr::Copy(_))
}

/// Compares two files byte by byte. One that cannot be read is different.
pub(crate) fn same_bytes(
    left: BorrowedFd<'_>,
    right: BorrowedFd<'_>,
    left_name: &[u8],
    right_name: &[u8],
) -> io::Result<bool> {
    use std::io::Read as _;
    let open = |dir: BorrowedFd<'_>, name: &[u8]| match open_file(dir, name, OFlags::RDONLY) {
        Ok(file) => Ok(Some(std::fs::File::from(file))),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => Ok(None),
        Err(error) => Err(error),
    };
    let (Some(mut left), Some(mut right)) = (open(left, left_name)?, open(right, right_name)?) else {
        return Ok(false);
    };
    let (mut a, mut b) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let length = left.read(&mut a)?;
        if length == 0 {
            return Ok(right.read(&mut b[..1])? == 0);
        }
        match right.read_exact(&mut b[..length]) {
            Ok(()) if a[..length] == b[..length] => {}
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
