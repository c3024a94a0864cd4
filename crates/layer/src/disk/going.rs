//! Removes large layers in parts: if one command cannot delete a layer in its time limit, later commands delete the rest.
//!
//! ```text
//!  remove_layer ──removed in time──▶ nothing
//!       └─time is up─▶ layers/RUN ──one rename──▶ layers/going/RUN ──a part in each later command──▶ nothing
//! ```
//! A sandboxed command controls how many files its layer has, and some file systems need a millisecond to remove a directory (ext4
//! mounted with `discard`). The end of a run must not wait for that. Nexus never reads the layers in `going` again, so a crash
//! between two steps only leaves more to delete.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, names};
use crate::disk::remove::remove_tree_until;
use rustix::fs::{FlockOperation, Mode, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Directory among the layers that holds the layers to be removed. It is not the name of a run.
pub const GOING: &str = "going";

/// Milliseconds that a command waits for the removal of one layer.
static WITHIN_MS: AtomicU64 = AtomicU64::new(1000);

/// Sets how long a command waits for the removal of one layer.
#[cfg(feature = "inject")]
pub fn set_within(time: Duration) {
    WITHIN_MS.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Returns a test of whether the time for the removal of one layer is up, counted from now.
pub(crate) fn time_is_up() -> impl FnMut() -> bool {
    let end = Instant::now() + Duration::from_millis(WITHIN_MS.load(Ordering::Relaxed));
    move || Instant::now() >= end
}

/// Moves what is left of a layer to where later commands remove it.
pub(crate) fn put(layers: &Workspace, run: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(layers.fd(), GOING, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let going = layers.dir(GOING.as_bytes())?;
    Ok(rustix::fs::renameat_with(layers.fd(), run, going.as_fd(), run, RenameFlags::NOREPLACE)?)
}

/// The layers that are to be removed in parts.
#[derive(Debug)]
pub struct Going {
    root: Workspace,
}

impl Going {
    /// Opens their directory among the layers at `layers`; `None` where there has been none yet.
    pub fn open(layers: &Path) -> Result<Option<Self>, IoFailure> {
        match Workspace::open(&layers.join(GOING)) {
            Ok(root) => Ok(Some(Self { root })),
            Err(error) if is_gone(&error.source) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts the layers.
    pub fn count(&self) -> Result<usize, IoFailure> {
        let again = self.root.readable_dir(b"").doing("open", b"")?;
        Ok(names(again.as_fd()).doing("list", b"")?.len())
    }

    /// Removes layers until `stop` returns true. Returns whether none is left. Does nothing while another process
    /// removes them.
    pub fn remove(&self, stop: &mut dyn FnMut() -> bool) -> Result<bool, IoFailure> {
        match rustix::fs::flock(self.root.fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            other => other.doing("lock", b"")?,
        }
        let done = self.remove_alone(stop);
        // Explicitly, and not by closing: a process forked meanwhile would keep the lock.
        let unlocked = rustix::fs::flock(self.root.fd(), FlockOperation::Unlock).doing("unlock", b"");
        done.and_then(|done| unlocked.map(|()| done))
    }

    fn remove_alone(&self, stop: &mut dyn FnMut() -> bool) -> Result<bool, IoFailure> {
        let again = self.root.readable_dir(b"").doing("open", b"")?;
        for name in names(again.as_fd()).doing("list", b"")? {
            if stop() || !remove_tree_until(&self.root, &name, stop).doing("remove", &name)? {
                return Ok(false);
            }
        }
        match std::fs::remove_dir(self.root.path()) {
            Ok(()) => Ok(true),
            // Another command has put a layer there, or removed the directory too.
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(true),
            Err(error) => Err(error).doing("remove", GOING.as_bytes()),
        }
    }
}
