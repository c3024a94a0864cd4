//! The right to start the sandbox of one request: either the launcher takes it, or the caller takes it back.
//!
//! ```text
//!  caller: pipe with one byte ──read end──▶ launcher
//!          launcher reads the byte: it starts the sandbox, and the caller waits for its answer
//!          caller reads the byte:   no process ever acts on the request, and the caller starts its sandbox itself
//! ```
//! The kernel gives a byte of a pipe to one reader. So a launcher that was stopped with the request in its queue costs its caller
//! little, and starts nothing when it goes on.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{self, Errno};
use rustix::pipe::{PipeFlags, pipe_with};

/// A right that one of two processes gets.
#[derive(Debug)]
pub struct Claim {
    pipe: OwnedFd,
}

impl Claim {
    /// Makes one that neither process has taken.
    pub fn new() -> Result<Self, Errno> {
        let (pipe, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        io::write(&write, b"1")?;
        Ok(Self { pipe })
    }

    /// The claim that came with a request. It is never waited for, whatever kind of file it is.
    pub fn received(pipe: OwnedFd) -> Result<Self, Errno> {
        let flags = rustix::fs::fcntl_getfl(&pipe)?;
        rustix::fs::fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok(Self { pipe })
    }

    /// Takes it, or finds that the other side has.
    pub fn take(&self) -> bool {
        matches!(io::retry_on_intr(|| io::read(&self.pipe, &mut [0; 1][..])), Ok(1))
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_two_gets_it() {
        for launcher_is_first in [true, false] {
            let caller = Claim::new().unwrap();
            let launcher = Claim::received(caller.as_fd().try_clone_to_owned().unwrap()).unwrap();
            let (first, second) = if launcher_is_first { (&launcher, &caller) } else { (&caller, &launcher) };
            assert!(first.take());
            assert!(!second.take() && !first.take());
        }
    }

    #[test]
    fn a_claim_without_a_byte_is_not_waited_for() {
        let (pipe, _write) = rustix::pipe::pipe().unwrap();
        assert!(!Claim::received(pipe).unwrap().take());
    }
}
