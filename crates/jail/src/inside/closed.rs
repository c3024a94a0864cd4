//! Covers the sockets in a directory that the search of the caller could not list, before that directory is covered itself. It may
//! be the caller's own: another run that may write there opens it later, and moves a socket out from under the cover. A cover
//! on the socket goes with it.
//!
//! This process has the rights of root in its user namespace over files of its own user and group, so it lists most of what the
//! caller could list after a chmod. What it cannot list is decided by the owner:
//!
//! ```text
//!  listed               ─▶ a cover on each socket
//!  another user's       ─▶ a cover on the directory: that user alone takes something out of it
//!  the caller's own     ─▶ refused: its group is another one, and the caller may open it
//! ```

use crate::mounts;
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::rc::Rc;

/// Entries that are read in one closed directory, and sockets and named pipes that are covered in it.
const MAX_ENTRIES: usize = 1_000_000;
const MAX_COVERS: usize = 10_000;
/// Directories in one another that are looked through; each keeps a descriptor open.
const MAX_DEPTH: usize = 200;

/// A directory that waits to be listed, by its parent. Without a name it is that directory itself.
struct Waiting {
    parent: Rc<OwnedFd>,
    name: Option<OsString>,
    depth: usize,
}

/// A closed directory cannot be made safe.
#[derive(Debug)]
pub(super) enum ClosedError {
    /// It holds more than is searched, or lies deeper.
    TooMuch,
    /// It is the caller's own, and this process has no right to it.
    CallersOwn,
    /// A call failed.
    Io(io::Error),
}

impl<E: Into<io::Error>> From<E> for ClosedError {
    fn from(error: E) -> Self {
        Self::Io(error.into())
    }
}

/// Covers each socket in a directory and below it by `cover`, and each named pipe where `with_pipes` says so.
pub(super) fn each_within(
    directory: &OwnedFd,
    with_pipes: bool,
    cover: &dyn Fn(&OwnedFd) -> io::Result<()>,
) -> Result<(), ClosedError> {
    let (mut entries, mut covers) = (MAX_ENTRIES, MAX_COVERS);
    let mut waiting = vec![Waiting { parent: Rc::new(directory.try_clone()?), name: None, depth: 0 }];
    while let Some(Waiting { parent, name, depth }) = waiting.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = name.as_deref().unwrap_or(OsStr::new("."));
        let opened = match rustix::fs::openat(&*parent, path, flags, Mode::empty()) {
            Ok(opened) => Rc::new(opened),
            // Gone meanwhile: the second search finds it elsewhere.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(Errno::ACCESS | Errno::PERM) => {
                cover_foreign(&parent, name.as_deref(), cover)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let listed = match Dir::read_from(&*opened) {
            // It may be listed and not entered.
            Err(Errno::ACCESS | Errno::PERM) => {
                cover_foreign(&parent, name.as_deref(), cover)?;
                continue;
            }
            listed => listed?,
        };
        for entry in listed {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            entries = entries.checked_sub(1).ok_or(ClosedError::TooMuch)?;
            let name = OsString::from_vec(name.to_vec());
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    match rustix::fs::statat(&*opened, name.as_os_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(Errno::NOENT) => continue,
                        Err(error) => return Err(error.into()),
                    }
                }
                kind => kind,
            };
            match kind {
                FileType::Directory if depth == MAX_DEPTH => return Err(ClosedError::TooMuch),
                FileType::Directory => {
                    waiting.push(Waiting { parent: Rc::clone(&opened), name: Some(name), depth: depth + 1 });
                }
                FileType::Socket | FileType::Fifo if kind == FileType::Socket || with_pipes => {
                    covers = covers.checked_sub(1).ok_or(ClosedError::TooMuch)?;
                    match mounts::place(&*opened, Path::new(&name)) {
                        Ok(place) => cover(&place)?,
                        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Covers a directory of another user that stays closed; refuses one of the caller's own.
fn cover_foreign(
    parent: &OwnedFd,
    name: Option<&OsStr>,
    cover: &dyn Fn(&OwnedFd) -> io::Result<()>,
) -> Result<(), ClosedError> {
    let Some(name) = name else {
        // The caller covers the outermost one. It is open already: to look up a name in it, also ".", takes the right to enter it.
        return if is_callers_own(parent)? { Err(ClosedError::CallersOwn) } else { Ok(()) };
    };
    let place = match mounts::place(parent, Path::new(name)) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(()),
        place => place?,
    };
    if is_callers_own(&place)? { Err(ClosedError::CallersOwn) } else { Ok(cover(&place)?) }
}

/// Reports whether an open file belongs to the caller, so that a process of the caller's may open it for others.
pub(super) fn is_callers_own(file: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fstat(file)?.st_uid == rustix::process::geteuid().as_raw())
}
