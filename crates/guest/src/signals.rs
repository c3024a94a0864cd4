//! Signals of PID 1: all blocked, child ends read from a descriptor.

use rustix::fd::{FromRawFd, OwnedFd};
use std::io;

/// Blocks every signal, puts every disposition back to the default (the caller of `nexus` may have had some ignored,
/// and exec hands that on), and returns a descriptor that becomes readable when a child has ended.
pub fn take_over() -> io::Result<OwnedFd> {
    // Zeros in every field are the default disposition, no flags and an empty mask, whichever order the fields have.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // Not signal(2) of the C library, which refuses the two signals that it keeps for itself: a caller that was started by
        // posix_spawn(3) has them ignored.
        // SAFETY: the kernel reads at most 32 bytes of zeros, and writes nothing; it refuses KILL and STOP, which is as well.
        unsafe {
            let none = std::ptr::null_mut::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, size_of::<u64>());
        }
    }
    // SAFETY: the sets are plain data, filled before use, and live during the calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        if libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut child: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut child);
        libc::sigaddset(&raw mut child, libc::SIGCHLD);
        let fd = libc::signalfd(-1, &raw const child, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Lets every signal through again; for a child before its exec.
pub fn unblock() -> bool {
    // SAFETY: as in `take_over`.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) == 0
    }
}
