//! Notifications of the kernel about calls that wait for an answer (seccomp_unotify(2)).

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The descriptor on which the kernel tells of calls.
pub(super) struct Listener(OwnedFd);

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The kernel does it, and reads its arguments again.
    GoOn,
    /// It is done.
    Done,
    /// It failed with this errno.
    Failed(i32),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Returns a call that waits. `None` when its process is gone by now; the caller has polled, so that this never waits.
    pub(super) fn next(&self) -> Option<libc::seccomp_notif> {
        // SAFETY: plain data for which zero is valid; the kernel demands that it is zero.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes one structure of this size, which the number of the request names.
        let taken = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut notice) };
        (taken == 0).then_some(notice)
    }

    /// Returns whether a call still waits for its answer. While it does, no other process has the number of its process.
    pub(super) fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the kernel reads one number.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw const id) == 0 }
    }

    /// Answers a call. One whose process is gone, or that was answered before, needs no answer.
    pub(super) fn answer(&self, id: u64, answer: Answer) {
        let (error, flags) = match answer {
            Answer::GoOn => (0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Done => (0, 0),
            Answer::Failed(errno) => (-errno, 0),
        };
        let mut response = libc::seccomp_notif_resp { id, val: 0, error, flags };
        // SAFETY: the kernel reads one structure of this size, which the number of the request names.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut response) };
    }
}
