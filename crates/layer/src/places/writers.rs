//! Finds out whether a process has a file open for writing, by a read lease (fcntl(2), `F_SETLEASE`).
//!
//! The kernel refuses the lease while a process has the file open for writing or mapped writable, and makes a process
//! that opens it for writing wait while the lease is held. A commit holds it for the few calls that compare and
//! exchange a file.

use crate::beneath::{LeaseCall, Workspace, open_file, split};
use crate::entries::changes::{Conflict, Outside};
use crate::journal::seen::Seen;
use crate::journal::step::Step;
use crate::meta::{EntryType, Meta, stat, stat_if_there};
use nexus_model::ByteText;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// A file that no process writes to as long as this lives.
#[derive(Debug)]
pub(crate) struct Lease {
    file: OwnedFd,
    call: LeaseCall,
}

impl Lease {
    /// Returns the attributes of the file itself, whatever its name means by now.
    pub(crate) fn meta(&self) -> io::Result<Meta> {
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
pub(crate) enum Writers {
    /// None, and none can come while the lease is held.
    None(Lease),
    /// A process has the file open for writing.
    Some,
    /// It cannot be known: the kernel gives no lease here.
    Unknown,
}

/// Asks about the regular file `name` in `dir`.
///
/// A process that has a write lease on the file may hold changes back until another process opens it: the open without
/// a wait fails with EWOULDBLOCK, and the process is asked for its changes.
pub(crate) fn writers(call: Option<LeaseCall>, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Writers> {
    let Some(call) = call else { return Ok(Writers::Unknown) };
    let asked = open_file(dir, name, OFlags::RDONLY).and_then(|file| call(file.as_fd(), true).map(|()| file));
    match asked {
        Ok(file) => Ok(Writers::None(Lease { file, call })),
        Err(error) if is_again(&error) => Ok(Writers::Some),
        Err(error) if says_nothing_about_the_file(&error) => Err(error),
        Err(_) => Ok(Writers::Unknown),
    }
}

/// Reports an error of this process or of the machine at this moment, after which nothing is known about the file.
fn says_nothing_about_the_file(error: &io::Error) -> bool {
    const ALL: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::NOLCK];
    Errno::from_io_error(error).is_some_and(|errno| ALL.contains(&errno))
}

/// Answer whether a file is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// It is, and no process that can be seen writes to it.
    Same,
    /// It has other content, or another entry has its name.
    Changed,
    /// A process has it open for writing.
    Written,
}

/// Compares the regular file `name` in `dir` with the version `old`.
///
/// The lease comes first, and the attributes are read while it is held: attributes from before it do not show what a
/// process wrote that closed the file a moment before the lease.
pub(crate) fn compare(call: Option<LeaseCall>, dir: BorrowedFd<'_>, name: &[u8], old: &Seen) -> io::Result<Compared> {
    let now = match writers(call, dir, name)? {
        Writers::Some => return Ok(Compared::Written),
        Writers::None(lease) => Some(lease.meta()?),
        Writers::Unknown => stat_if_there(dir, name)?,
    };
    Ok(if now.is_some_and(|now| old.is_same_version(&now)) { Compared::Same } else { Compared::Changed })
}

/// Looks for files that a commit would replace or delete and that a process has open for writing.
pub(crate) struct OpenElsewhere<'a> {
    base: &'a Workspace,
    last: Option<(Vec<u8>, OwnedFd)>,
    found: Vec<Conflict>,
}

impl<'a> OpenElsewhere<'a> {
    pub(crate) fn new(base: &'a Workspace) -> Self {
        Self { base, last: None, found: Vec::new() }
    }

    /// Looks at what a step displaces.
    pub(crate) fn inspect(&mut self, step: &Step) -> io::Result<()> {
        let (Some(path), Some(old)) = (step.path(), step.displaces()) else { return Ok(()) };
        if old.kind != EntryType::File {
            return Ok(());
        }
        let (parent, name) = split(&path.0);
        if self.last.as_ref().is_none_or(|(open, _)| open != parent) {
            // A directory that cannot be entered yet, after a rename for instance: the step itself looks again.
            self.last = self.base.dir(parent).ok().map(|dir| (parent.to_vec(), dir));
        }
        let Some((_, dir)) = &self.last else { return Ok(()) };
        if matches!(writers(self.base.leases(), dir.as_fd(), name)?, Writers::Some) {
            self.found.push(Conflict::new(path.clone(), Outside::Open));
        }
        Ok(())
    }

    /// Returns the conflicts that were found.
    pub(crate) fn found(self) -> Vec<Conflict> {
        self.found
    }
}

/// Lists the files among `paths` that processes have open for reading and no process has open for writing. Such a
/// process continues to read the old version after a commit.
///
/// The check takes a write lease on each file and releases it at once; an `open(2)` by another process waits for it.
pub fn open_for_reading<'a>(
    workspace: &Workspace,
    paths: impl Iterator<Item = &'a ByteText>,
    write_lease: LeaseCall,
) -> Vec<ByteText> {
    let is_read = |path: &[u8]| {
        let (parent, name) = split(path);
        let Ok(dir) = workspace.dir(parent) else { return false };
        let Ok(file) = open_file(dir.as_fd(), name, OFlags::RDONLY) else { return false };
        match write_lease(file.as_fd(), true) {
            Ok(()) => {
                drop(Lease { file, call: write_lease });
                false
            }
            Err(error) if is_again(&error) => {
                drop(file);
                matches!(writers(workspace.leases(), dir.as_fd(), name), Ok(Writers::None(_)))
            }
            Err(_) => false,
        }
    };
    paths.filter(|path| is_read(&path.0)).cloned().collect()
}

fn is_again(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}
