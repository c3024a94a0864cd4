//! A terminal for a command: a pair of the sandbox's own devpts.
//!
//! ```text
//!  open /dev/pts/ptmx ─▶ unlock ─▶ size ─▶ TIOCGPTPEER ─▶ slave ─▶ the command's session
//!        └─ master ─▶ a copy to the host, who reads and writes it; ours only for Resize, until the command ends
//! ```
//! The caller's terminal never comes inside, so nothing that a command does to its own reaches it (CVE-2017-5226). The
//! slave is never opened by its name: the name is in the reach of the command (CVE-2016-10124 and its kin), the peer
//! of a descriptor is not.

use nexus_channel::frames::TerminalSize;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::io;

/// Both ends of a new terminal.
#[derive(Debug)]
pub struct Terminal {
    /// The end that shows and types.
    pub master: OwnedFd,
    /// The command's end.
    pub slave: OwnedFd,
}

impl Terminal {
    /// Makes one of this size.
    pub fn open(size: TerminalSize) -> io::Result<Self> {
        // Non-blocking for the host, who shares this open file: one that does not take what is typed must not hold
        // it up. We are a session leader, so without NOCTTY the slave could become ours.
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let master = rustix::fs::open(c"/dev/pts/ptmx", flags, Mode::empty())?;
        let locked: libc::c_int = 0;
        // SAFETY: the ioctl reads one int, which lives during the call.
        if unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const locked) } != 0 {
            return Err(io::Error::last_os_error());
        }
        resize(&master, size)?;
        let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: takes open(2) flags as a plain number and returns a new descriptor.
        let slave = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags) };
        if slave < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self { master, slave: unsafe { OwnedFd::from_raw_fd(slave) } })
    }
}

/// Sets the size; the foreground processes get SIGWINCH when it is another one.
pub fn resize(master: &OwnedFd, size: TerminalSize) -> io::Result<()> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the ioctl reads one winsize, which lives during the call.
    let set = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
