//! Opens the upper directory of a layer, even if the run removed its permission bits.
//!
//! The overlay shows the upper directory as the workspace itself, so `chmod 000 .` closes it to an ordinary user. Nexus
//! owns the directory: if its owner cannot list or enter it, Nexus sets these two bits before it reads anything, and the change set
//! shows the mode with them. A run therefore cannot lock the owner out of the workspace.

use crate::beneath::{Doing as _, IoFailure, Workspace, chmod, is_empty, is_gone, open_dir};
use crate::disk::opened::ForcedNotes;
use crate::meta::stat;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// List and enter.
const NEEDED: u32 = 0o500;

/// The upper directory of the layer whose directory is `root`, readable.
pub(crate) fn open_upper(root: &Workspace) -> io::Result<OwnedFd> {
    if is_bound() {
        widen(open_dir(root.fd(), b"upper", OFlags::PATH)?.as_fd())?;
    }
    open_dir(root.fd(), b"upper", OFlags::RDONLY)
}

/// The same for the steps of a commit: the mode of each directory in it that they open up is noted.
pub(crate) fn open_for_steps(root: &Workspace) -> io::Result<Workspace> {
    Ok(Workspace::from_fd(open_upper(root)?).noting(ForcedNotes::new(root)?))
}

/// The upper directory that `upper` holds, readable.
pub(crate) fn reopen_upper(upper: &OwnedFd) -> io::Result<OwnedFd> {
    if is_bound() {
        widen(upper.as_fd())?;
    }
    open_dir(upper.as_fd(), b"", OFlags::RDONLY)
}

/// Reports whether the upper directory is empty or was never made.
pub(crate) fn is_bare(root: &Workspace) -> Result<bool, IoFailure> {
    match open_upper(root) {
        Ok(upper) => is_empty(upper.as_fd()).doing("list", b"upper"),
        Err(error) if is_gone(&error) => Ok(true),
        Err(error) => Err(error).doing("open", b"upper"),
    }
}

/// Opens overlay's index, which exists in root's layers once a file with several names was copied up.
pub(crate) fn open_index(root: &Workspace) -> Result<Option<Workspace>, IoFailure> {
    match root.readable_dir(b"work/index") {
        Ok(dir) => Ok(Some(Workspace::from_fd(dir))),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error).doing("open", b"work/index"),
    }
}

/// Reports whether the mode of a file binds this process.
fn is_bound() -> bool {
    !rustix::process::geteuid().is_root()
}

fn widen(upper: BorrowedFd<'_>) -> io::Result<()> {
    let mode = stat(upper, b"")?.mode;
    if mode & NEEDED == NEEDED { Ok(()) } else { chmod(upper, mode | NEEDED) }
}
