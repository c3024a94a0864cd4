//! Removes a tree that a hostile process made, under a directory descriptor.
//!
//! The directories in a directory are first moved up to the top, so that a deep tree takes neither memory nor descriptors. No path is followed: a
//! link is removed itself, and its target stays.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;

/// Removes everything in the directory `top`, which stays.
pub fn empty(top: BorrowedFd<'_>) -> io::Result<()> {
    let mut number = 0u64;
    loop {
        let entries = entries(top)?;
        if entries.is_empty() {
            return Ok(());
        }
        for (name, kind) in entries {
            if kind != FileType::Directory {
                unlink(top, &name, AtFlags::empty())?;
                continue;
            }
            let directory = open(top, &name)?;
            for (inner, kind) in self::entries(directory.as_fd())? {
                if kind != FileType::Directory {
                    unlink(directory.as_fd(), &inner, AtFlags::empty())?;
                    continue;
                }
                // Moving a directory changes its entry for the parent, which takes the right to write to it.
                open(directory.as_fd(), &inner)?;
                number = moved_up(directory.as_fd(), &inner, top, number)?;
            }
            unlink(top, &name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Moves a directory to a free name of `top`; returns the next number to try.
fn moved_up(from: BorrowedFd<'_>, name: &CString, top: BorrowedFd<'_>, mut number: u64) -> io::Result<u64> {
    loop {
        let flat = format!("{number}.nexus-removal");
        number += 1;
        match rustix::fs::renameat_with(from, name, top, flat, rustix::fs::RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(number),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn entries(directory: BorrowedFd<'_>) -> io::Result<Vec<(CString, FileType)>> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            kind => kind,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

/// Opens a directory, and widens its mode first where its owner cannot read it. A mount point is an error (EXDEV): its files are not of this
/// tree.
fn open(parent: BorrowedFd<'_>, name: &CString) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let path = openat2(parent, name, OFlags::PATH | flags, Mode::empty(), resolve)?;
    let rights = Mode::RUSR | Mode::WUSR | Mode::XUSR;
    if !Mode::from_raw_mode(rustix::fs::fstat(&path)?.st_mode).contains(rights) {
        rustix::fs::chmod(format!("/proc/self/fd/{}", path.as_raw_fd()), rights)?;
    }
    Ok(openat2(parent, name, OFlags::RDONLY | flags, Mode::empty(), resolve)?)
}

fn unlink(parent: BorrowedFd<'_>, name: &CString, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(parent, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
