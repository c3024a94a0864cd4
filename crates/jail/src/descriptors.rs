//! Descriptors that a process got from its caller and must not hand on.

use std::io;

/// Lets every descriptor above 2 go with the next exec. A program that stays after its caller has ended would
/// otherwise hold open what the caller's caller waits for, and whatever else it was given by mistake.
pub fn hand_on_nothing() -> io::Result<()> {
    // SAFETY: close_range(2) with CLOSE_RANGE_CLOEXEC closes nothing here; it only sets a flag.
    let set = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn no_descriptor_above_2_outlives_an_exec() {
        let file = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: dup(2) and fcntl(2) with plain numbers; the copy, which an exec would keep, is closed below.
        let copy = unsafe { libc::dup(file.as_raw_fd()) };
        let is_kept = || {
            // SAFETY: as above.
            unsafe { libc::fcntl(copy, libc::F_GETFD) & libc::FD_CLOEXEC == 0 }
        };
        assert!(copy > 2 && is_kept());
        hand_on_nothing().unwrap();
        assert!(!is_kept());
        // SAFETY: as above.
        unsafe { libc::close(copy) };
    }
}
