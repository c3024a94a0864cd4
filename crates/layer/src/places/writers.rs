//! Compares and lists files that processes have open: see [`crate::beneath::writers`].

use crate::beneath::writers::{Lease, is_again};
pub(crate) use crate::beneath::writers::{Writers, writers};
use crate::beneath::{LeaseCall, Workspace, open_file, split};
use crate::entries::changes::{Conflict, Outside};
use crate::journal::seen::Seen;
use crate::journal::step::Step;
use crate::meta::{EntryType, stat_if_there};
use nexus_model::ByteText;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

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
                drop(Lease::held(file, write_lease));
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
