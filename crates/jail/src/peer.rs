//! Reads what only the kernel can say about the process at the other end of a socket, and about this one.

use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::collections::BTreeMap;
use std::io;

/// From asm-generic/socket.h (Linux 6.5); libc has no constant for it.
const SO_PEERPIDFD: libc::c_int = 77;

/// Returns the process that connected a Unix socket, or the one that listens at the other end, as a pidfd. Unlike the number
/// of SO_PEERCRED it never means another process later. Fails with `ENOPROTOOPT` before Linux 6.5, and with `ESRCH` or
/// `EINVAL` where that process has ended and was collected.
pub fn process_of(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut pidfd: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes one int into memory of ours, and its length.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut pidfd).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if pidfd < 0 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    // SAFETY: the kernel put a new descriptor there, which belongs to nothing else. It is closed on exec (pidfd_prepare).
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

/// Returns settings of this process that its children have too and that no file of `/proc` shows to other processes, by name.
/// A call that this kernel does not have gives -1 in every process.
#[must_use]
pub fn own_settings() -> BTreeMap<&'static str, i64> {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    const PR_GET_MDWE: libc::c_int = 66;
    const UNCHANGED: libc::c_ulong = 0xffff_ffff;
    let none: libc::c_ulong = 0;
    let mut policy: libc::c_int = 0;
    // SAFETY: the calls take numbers and return one. get_mempolicy(2) writes one int into memory of ours and takes no other.
    unsafe {
        let prctl =
            |option: libc::c_int, argument: libc::c_ulong| i64::from(libc::prctl(option, argument, none, none, none));
        let null = std::ptr::null_mut::<libc::c_ulong>();
        let read = libc::syscall(libc::SYS_get_mempolicy, &raw mut policy, null, none, null, none);
        BTreeMap::from([
            ("personality", i64::from(libc::personality(UNCHANGED))),
            ("timer_slack", prctl(libc::PR_GET_TIMERSLACK, 0)),
            ("huge_pages", prctl(libc::PR_GET_THP_DISABLE, 0)),
            ("write_execute", prctl(PR_GET_MDWE, 0)),
            ("store_bypass", prctl(libc::PR_GET_SPECULATION_CTRL, 0)),
            ("indirect_branch", prctl(libc::PR_GET_SPECULATION_CTRL, 1)),
            ("io_priority", libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0)),
            ("memory_policy", if read == 0 { i64::from(policy) } else { -1 }),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn the_process_at_the_other_end_is_known_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let connected = UnixStream::connect(&path).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for end in [&connected, &accepted] {
            let process = match process_of(end) {
                Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                    crate::skip::skipped("this kernel has no SO_PEERPIDFD");
                    return;
                }
                other => other.unwrap(),
            };
            // This very process, which lives.
            let mut wait = [PollFd::new(&process, PollFlags::IN)];
            assert_eq!(poll(&mut wait, Some(&Timespec::default())), Ok(0));
        }
        assert!(process_of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn the_settings_of_a_process_are_those_of_its_call() {
        let before = own_settings();
        let slack = before["timer_slack"];
        assert!(slack > 0 && before["personality"] >= 0, "{before:?}");
        // SAFETY: prctl(2) with numbers; changes this thread alone.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, (slack + 1) as libc::c_ulong, 0, 0, 0) };
        assert_eq!(own_settings()["timer_slack"], slack + 1);
    }
}
