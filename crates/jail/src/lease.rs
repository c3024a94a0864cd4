//! Leases on files (fcntl(2), `F_SETLEASE`), by which a commit finds out whether a process has a file open.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Takes (`true`) or releases a read lease on a file that is open for reading.
///
/// Taking it fails with EAGAIN while any process has the file open for writing or mapped writable, and with EACCES on a
/// file of another owner without CAP_LEASE. While it is held, `open(2)` for writing waits until the lease is released.
pub fn read_lease(file: BorrowedFd<'_>, take: bool) -> io::Result<()> {
    lease(file, take.then_some(libc::F_RDLCK))
}

/// Takes (`true`) or releases a write lease on a file that is open for reading by the caller alone.
///
/// Taking it fails with EAGAIN while any other descriptor of the file is open, in this process or another. While it is
/// held, every `open(2)` of the file waits until the lease is released.
pub fn write_lease(file: BorrowedFd<'_>, take: bool) -> io::Result<()> {
    lease(file, take.then_some(libc::F_WRLCK))
}

fn lease(file: BorrowedFd<'_>, kind: Option<libc::c_int>) -> io::Result<()> {
    let fcntl = |command: libc::c_int, argument: libc::c_int| {
        // SAFETY: fcntl(2) with F_SETSIG and F_SETLEASE takes an int, reads and writes no memory of this process, and
        // the descriptor is open for the whole call, as the borrow says.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    let Some(kind) = kind else { return fcntl(libc::F_SETLEASE, libc::F_UNLCK) };
    // The kernel tells the holder by a signal that a writer waits. SIGIO, the usual one, would end this process;
    // SIGURG is ignored unless a program asks for it (signal(7)).
    fcntl(F_SETSIG, libc::SIGURG)?;
    fcntl(libc::F_SETLEASE, kind)
}

/// fcntl(2): the signal that is sent instead of SIGIO.
const F_SETSIG: libc::c_int = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd as _;

    #[test]
    fn a_lease_is_refused_while_a_writer_has_the_file_open() {
        let directory = std::env::temp_dir().join(format!("nexus-lease-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("file");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let (second, writer) = (File::open(&path).unwrap(), File::options().append(true).open(&path).unwrap());
        let refused = read_lease(file.as_fd(), true).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        drop(writer);
        read_lease(file.as_fd(), true).unwrap();
        read_lease(file.as_fd(), false).unwrap();
        let refused = write_lease(file.as_fd(), true).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN), "a reader keeps a write lease away");
        drop(second);
        write_lease(file.as_fd(), true).unwrap();
        write_lease(file.as_fd(), false).unwrap();
        drop(file);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
