//! Extended attributes of entries that need not be openable: links, FIFOs, files without read permission.
//!
//! `/proc/self/fd/<directory>/<name>` with the l-variants of the calls: the directory is held open and the name is a
//! single component, so nothing is followed.

use crate::beneath::{chmod, join, pin, proc_path};
use crate::meta::stat;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// A list of attributes: name and value.
pub(crate) type Attrs = Vec<(Vec<u8>, Vec<u8>)>;

fn path_of(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    if name.is_empty() { proc_path(dir).into_bytes() } else { join(proc_path(dir).as_bytes(), name) }
}

/// The names of all attributes of an entry; of the directory itself when `name` is empty.
pub(crate) fn list(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let path = path_of(dir, name);
    let mut buffer = [0_u8; 1024];
    // An empty name stands for the magic link, which has to be followed to reach the directory.
    let call = |into: &mut [u8]| {
        if name.is_empty() { rustix::fs::listxattr(&*path, into) } else { rustix::fs::llistxattr(&*path, into) }
    };
    let split = |bytes: &[u8]| bytes.split(|byte| *byte == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect();
    match call(&mut buffer) {
        Ok(length) => Ok(split(&buffer[..length])),
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        Err(Errno::RANGE) => {
            // The kernel's own limit is 64 KiB.
            let mut large = vec![0_u8; 65536];
            let length = call(&mut large)?;
            Ok(split(&large[..length]))
        }
        Err(error) => Err(error.into()),
    }
}

/// The value of one attribute, also of a file whose owner may not read it (its mode is opened up for the moment).
pub(crate) fn get(dir: BorrowedFd<'_>, name: &[u8], attr: &[u8]) -> io::Result<Vec<u8>> {
    with_access(dir, name, || {
        let path = path_of(dir, name);
        let mut value = vec![0_u8; 65536];
        let length = if name.is_empty() {
            rustix::fs::getxattr(&*path, attr, &mut *value)?
        } else {
            rustix::fs::lgetxattr(&*path, attr, &mut *value)?
        };
        value.truncate(length);
        Ok(value)
    })
}

/// Sets one attribute of an entry or, with an empty name, of an open one.
pub(crate) fn set(dir: BorrowedFd<'_>, name: &[u8], attr: &[u8], value: &[u8]) -> io::Result<()> {
    with_access(dir, name, || {
        let path = path_of(dir, name);
        if name.is_empty() {
            rustix::fs::setxattr(&*path, attr, value, XattrFlags::empty())
        } else {
            rustix::fs::lsetxattr(&*path, attr, value, XattrFlags::empty())
        }
    })
}

/// Removes one attribute; that it is not there is fine.
pub(crate) fn remove(dir: BorrowedFd<'_>, name: &[u8], attr: &[u8]) -> io::Result<()> {
    with_access(dir, name, || {
        let path = path_of(dir, name);
        let done = if name.is_empty() {
            rustix::fs::removexattr(&*path, attr)
        } else {
            rustix::fs::lremovexattr(&*path, attr)
        };
        match done {
            Err(Errno::NODATA) => Ok(()),
            other => other,
        }
    })
}

/// Tries once; when the mode keeps the owner out, tries again with a wider mode and puts the old one back.
fn with_access<T>(dir: BorrowedFd<'_>, name: &[u8], call: impl Fn() -> Result<T, Errno>) -> io::Result<T> {
    match call() {
        Err(Errno::ACCESS) => {}
        other => return Ok(other?),
    }
    let pinned;
    let entry = if name.is_empty() {
        dir
    } else {
        pinned = pin(dir, name)?;
        pinned.as_fd()
    };
    let meta = stat(entry, b"")?;
    if meta.kind == crate::meta::EntryType::Symlink {
        return Err(Errno::ACCESS.into());
    }
    chmod(entry, meta.mode | 0o600)?;
    let result = call();
    chmod(entry, meta.mode)?;
    Ok(result?)
}
