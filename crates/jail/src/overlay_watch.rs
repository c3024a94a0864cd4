//! Tells whether the overlay of a workspace is gone for good.
//!
//! ```text
//!  instance ─▶ (overlay mounted) watch its root ─▶ … ─▶ every process inside is dead ─┬─▶ IN_UNMOUNT: nobody has anything of it
//!                                                                                   └─▶ nothing: somebody does
//! ```
//! A file that a command opened may outlive its sandbox: in a message on a socket, in another sandbox, in a mapping. So may
//! a directory, a read-only file or an `O_PATH` descriptor, by which the file can be opened for writing later. All of them
//! keep the overlay's superblock, and the kernel sends IN_UNMOUNT when the superblock is destroyed (inotify(7)). A lease on
//! the file would show nothing but writers.

use crate::mounts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Makes an instance. A clone made afterwards has it, too. `None` when the user has no more of them: a caller then has
/// to assume that a process may hold something.
pub(crate) fn instance() -> Option<OwnedFd> {
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()
}

/// Watches the root of an overlay that is not attached yet. Where that fails no event ever comes.
pub(crate) fn watch(instance: Option<&OwnedFd>, overlay: &OwnedFd) {
    if let Some(instance) = instance {
        let flags = WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
        inotify::add_watch(instance, mounts::fd_path(overlay), flags).ok();
    }
}

/// Waits until the overlay is gone for good, so that no process has anything of it. `false`: one may have.
#[must_use]
pub fn overlay_is_gone(instance: &OwnedFd, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    loop {
        match says_unmounted(instance) {
            Ok(true) => return true,
            Ok(false) => {}
            Err(_) => return false,
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(instance, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

fn says_unmounted(instance: &OwnedFd) -> Result<bool, Errno> {
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut reader = Reader::new(instance, &mut space);
    loop {
        match reader.next() {
            Ok(event) if event.events().contains(ReadFlags::UNMOUNT) => return Ok(true),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
