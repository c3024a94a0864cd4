//! Descriptors that a process got from its caller and must not hand on.

use std::io;

/// Lets every descriptor above 2 go with the next exec. A program that stays after its caller has ended would
/// otherwise hold open what the caller's caller waits for, and whatever else it was given by mistake.
pub fn hand_on_nothing() -> io::Result<()> {
    // SAFETY: close_range(2) with CLOSE_RANGE_CLOEXEC closes nothing here; it only sets a flag.
    let set = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
