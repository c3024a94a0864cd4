//! Layers that take long to remove: what is left of one when the time is up goes away in later commands.
//!
//! ```text
//!  remove_layer ──removed in time──▶ nothing
//!       └─time is up─▶ layers/RUN ──one rename──▶ layers/going/RUN ──a part in each later command──▶ nothing
//! ```
//! A command decides how much there is to remove, and some file systems take a millisecond for each directory (ext4 mounted
//! with `discard`). The end of its run must not wait for that. Nothing in here is ever read again, so that a crash between two
//! steps only leaves more to remove.

use crate::beneath::{Doing as _, IoFailure, Workspace, is_gone, names};
use crate::remove::remove_tree_until;
use rustix::fs::{FlockOperation, Mode, RenameFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The directory for them among the layers. It is not the name of a run.
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

/// The layers that are going away.
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

    /// Removes layers until `stop`. Returns whether none is left. Leaves them to another process that removes them now.
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
