//! Finds out whether a process has a file open for writing, by a read lease (fcntl(2), `F_SETLEASE`).
//!
//! The kernel refuses the lease while a process has the file open for writing or mapped writable. While it is held, an open for writing waits.

use nexus_beneath::{LeaseCall, open_file};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Answer whether a process writes to a file.
#[derive(Debug)]
pub(super) enum Writers {
    /// None does, and none begins as long as this lives.
    None(#[expect(dead_code, reason = "it is held, and ends with this value")] Lease),
    /// A process has the file open for writing.
    Some,
    /// It cannot be known: there is no call, or the kernel gives no lease here.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Lease {
    file: OwnedFd,
    call: LeaseCall,
}

impl Drop for Lease {
    /// Releases the lease itself: a process that was forked meanwhile has the descriptor, too. A failure leaves it to the last close.
    fn drop(&mut self) {
        (self.call)(self.file.as_fd(), false).ok();
    }
}

/// Asks about the regular file `name` in `dir`. Where this process or the machine cannot answer at this moment, that is an error.
pub(super) fn writers(call: Option<LeaseCall>, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Writers> {
    let Some(call) = call else { return Ok(Writers::Unknown) };
    let asked = open_file(dir, name, OFlags::RDONLY).and_then(|file| call(file.as_fd(), true).map(|()| file));
    match asked {
        Ok(file) => Ok(Writers::None(Lease { file, call })),
        Err(error) => match Errno::from_io_error(&error) {
            // Also of an open, where a process holds changes back by a write lease.
            Some(Errno::AGAIN) => Ok(Writers::Some),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR | Errno::NOLCK) => Err(error),
            _ => Ok(Writers::Unknown),
        },
    }
}
