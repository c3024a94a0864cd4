//! Finds out whether a process has a file open for writing, by a read lease (fcntl(2), `F_SETLEASE`).
//!
//! The kernel refuses the lease while a process has the file open for writing or mapped writable, and makes a process
//! that opens it for writing wait while the lease is held. It is held for the few calls that compare a file, and exchange or remove it.

use crate::meta::{Meta, stat};
use crate::tree::{LeaseCall, open_file};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A file that no process writes to as long as this lives.
#[derive(Debug)]
pub struct Lease {
    file: OwnedFd,
    call: LeaseCall,
}

impl Lease {
    /// Holds the lease that `call` was given on a file.
    #[must_use]
    pub fn held(file: OwnedFd, call: LeaseCall) -> Self {
        Self { file, call }
    }

    /// Returns the attributes of the file itself, whatever its name means by now.
    pub fn meta(&self) -> io::Result<Meta> {
        stat(self.file.as_fd(), b"")
    }
}

impl Drop for Lease {
    /// Releases the lease explicitly, and not by closing: a process forked meanwhile has the descriptor until it
    /// executes its program. A failure leaves the lease to the last close.
    fn drop(&mut self) {
        (self.call)(self.file.as_fd(), false).ok();
    }
}

/// Answer whether a process writes to a file.
#[derive(Debug)]
pub enum Writers {
    /// None, and none can come while the lease is held.
    None(Lease),
    /// A process has the file open for writing.
    Some,
    /// The kernel gives no lease here, or there is no call that asks it.
    Unknown,
}

/// Asks about the regular file `name` in `dir`.
///
/// A process that has a write lease on the file may hold changes back until another process opens it: the open without
/// a wait fails with EWOULDBLOCK, and the process is asked for its changes.
pub fn writers(call: Option<LeaseCall>, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Writers> {
    let Some(call) = call else { return Ok(Writers::Unknown) };
    let asked = open_file(dir, name, OFlags::RDONLY).and_then(|file| call(file.as_fd(), true).map(|()| file));
    match asked {
        Ok(file) => Ok(Writers::None(Lease::held(file, call))),
        Err(error) if is_again(&error) => Ok(Writers::Some),
        Err(error) if says_nothing_about_the_file(&error) => Err(error),
        Err(_) => Ok(Writers::Unknown),
    }
}

/// Reports whether an error means that another process has the file open.
#[must_use]
pub fn is_again(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}

/// Reports an error of this process or of the machine at this moment, after which nothing is known about the file.
fn says_nothing_about_the_file(error: &io::Error) -> bool {
    const ALL: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::NOLCK];
    Errno::from_io_error(error).is_some_and(|errno| ALL.contains(&errno))
}
