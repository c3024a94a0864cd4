//! The name of a layer's directory, and the lock on it: a recovery does not take a layer that another process holds.

use crate::beneath::Workspace;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::io;

/// A layer's directory that no other process works with.
#[derive(Debug)]
pub(crate) struct Locked(Workspace);

impl Locked {
    /// Takes the lock; `None` when another process has it.
    pub(crate) fn new(root: Workspace) -> io::Result<Option<Self>> {
        match rustix::fs::flock(root.fd(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self(root))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::ops::Deref for Locked {
    type Target = Workspace;
    fn deref(&self) -> &Workspace {
        &self.0
    }
}

impl Drop for Locked {
    /// Unlocks explicitly, and not by closing: a process forked meanwhile has the descriptor until it executes its
    /// program, and would keep the lock that long. A failure leaves the lock to the last close.
    fn drop(&mut self) {
        rustix::fs::flock(self.0.fd(), FlockOperation::Unlock).ok();
    }
}

/// Reports whether a text is a run id: letters, digits, `-` and `_`, usable as the name of a directory and in a
/// temporary name.
pub(crate) fn is_run_id(run: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !run.is_empty() && run.len() <= 64 && run.bytes().all(fits)
}
