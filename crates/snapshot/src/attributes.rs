//! Reads and writes the extended attributes that a snapshot keeps: those of the user (`user.*`) and access lists. It keeps no marks of overlay
//! file systems and no privileges (`security.*`).
//!
//! The calls take the path `/proc/self/fd/DIRECTORY/NAME` and follow no link at its end. The directory is held open and the name is a single
//! component, so that no link of the tree is followed.

use nexus_beneath::{join, proc_path};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::BorrowedFd;

/// Name and value.
pub(crate) type Extended = Vec<(Vec<u8>, Vec<u8>)>;

/// Largest value of an attribute in Linux.
const LARGEST: usize = 64 << 10;

/// Reports whether an attribute is kept.
fn is_kept(name: &[u8]) -> bool {
    let of_overlay = name.starts_with(b"user.overlay.");
    (name.starts_with(b"user.") && !of_overlay) || name.starts_with(b"system.posix_acl_")
}

/// Reads the attributes of an entry; of the directory itself when `name` is empty.
pub(crate) fn read(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Extended> {
    let path = path_of(dir, name);
    let mut buffer = vec![0_u8; 1024];
    let length = loop {
        let listed = if name.is_empty() {
            rustix::fs::listxattr(&*path, buffer.as_mut_slice())
        } else {
            rustix::fs::llistxattr(&*path, buffer.as_mut_slice())
        };
        match listed {
            Ok(length) => break length,
            Err(Errno::RANGE) if buffer.len() < LARGEST => buffer.resize(LARGEST, 0),
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    };
    buffer.truncate(length);
    let mut found = Vec::new();
    for one in buffer.split(|byte| *byte == 0).filter(|one| is_kept(one)) {
        let mut value = vec![0_u8; LARGEST];
        let length = if name.is_empty() {
            rustix::fs::getxattr(&*path, one, value.as_mut_slice())
        } else {
            rustix::fs::lgetxattr(&*path, one, value.as_mut_slice())
        };
        match length {
            Ok(length) => value.truncate(length),
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(error.into()),
        }
        found.push((one.to_vec(), value));
    }
    found.sort();
    Ok(found)
}

/// Sets the attributes of an entry; of the directory itself when `name` is empty.
pub(crate) fn write(dir: BorrowedFd<'_>, name: &[u8], extended: &Extended) -> io::Result<()> {
    let path = path_of(dir, name);
    for (attribute, value) in extended.iter().filter(|(attribute, _)| is_kept(attribute)) {
        if name.is_empty() {
            rustix::fs::setxattr(&*path, attribute.as_slice(), value, XattrFlags::empty())?;
        } else {
            rustix::fs::lsetxattr(&*path, attribute.as_slice(), value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

/// Gives an open entry, also one opened with `O_PATH`, exactly these attributes. One that it has already is not set again.
pub(crate) fn make(entry: BorrowedFd<'_>, wanted: &Extended) -> io::Result<()> {
    let path = path_of(entry, b"");
    let there = read(entry, b"")?;
    for (attribute, _) in there.iter().filter(|(name, _)| !wanted.iter().any(|(one, _)| one == name)) {
        match rustix::fs::removexattr(&*path, attribute.as_slice()) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let missing = wanted.iter().filter(|one| !there.contains(one)).cloned().collect();
    write(entry, b"", &missing)
}

fn path_of(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    if name.is_empty() { proc_path(dir).into_bytes() } else { join(proc_path(dir).as_bytes(), name) }
}
