//! The process at the other end of a connection, looked at through `/proc` without being mistaken for another one.

use super::likeness::Likeness;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::io;

/// The process that connected, or that listens.
#[derive(Debug)]
pub struct Peer {
    process: OwnedFd,
    /// Its number in this pid namespace.
    pub pid: i32,
}

impl Peer {
    /// Finds the process at the other end. An error where it has ended, or is not in this pid namespace or one below.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let process = nexus_jail::peer::process_of(socket)?;
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()))?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
        let pid = pid.filter(|pid| *pid > 0).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Self { process, pid })
    }

    /// Reads something of the process by its number. An error where the process has ended by then: the number may have been
    /// another one's meanwhile.
    pub fn read(&self, read: impl FnOnce(i32) -> io::Result<Likeness>) -> io::Result<Likeness> {
        let found = read(self.pid)?;
        let mut wait = [PollFd::new(&self.process, PollFlags::IN)];
        match rustix::io::retry_on_intr(|| poll(&mut wait, Some(&Timespec::default())))? {
            0 => Ok(found),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The process, as a pidfd.
    pub fn process(&self) -> &OwnedFd {
        &self.process
    }
}

/// Returns why this kernel cannot say which process is at the other end of a socket.
pub fn missing() -> Option<io::Error> {
    std::os::unix::net::UnixStream::pair().and_then(|(socket, _other)| Peer::of(&socket)).err()
}
