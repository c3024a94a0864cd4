//! Prepares an entry for a rename: adds the owner bits to a closed directory, and removes overlay's attributes.

use crate::beneath::{chmod, pin};
use crate::disk::xattr;
use crate::meta::{EntryType, Meta};
use nexus_model::ByteText;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// Opens a directory up before it is moved: one that changes its parent has its `..` rewritten, for which its owner
/// needs the write bit.
pub(crate) fn make_movable(dir: BorrowedFd<'_>, name: &[u8], meta: &Meta) -> io::Result<()> {
    let closed = meta.kind == EntryType::Directory && meta.mode & 0o700 != 0o700;
    if closed && !rustix::process::geteuid().is_root() {
        chmod(pin(dir, name)?.as_fd(), meta.mode | 0o700)?;
    }
    Ok(())
}

/// Removes overlay's marks of these names from an entry.
pub(crate) fn strip_marks(dir: BorrowedFd<'_>, name: &[u8], names: &[ByteText]) -> io::Result<()> {
    for one in names {
        match xattr::remove(dir, name, &one.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}
