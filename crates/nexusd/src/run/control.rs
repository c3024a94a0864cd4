//! Lets other threads end the command of a run, and wake the thread that attends it.

use rustix::fd::{AsFd, BorrowedFd};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering};

/// Action that another thread wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Wanted {
    /// The command goes on.
    Nothing = 0,
    /// SIGTERM, and SIGKILL after the grace of the contract.
    Cancel = 1,
    /// SIGTERM, and SIGKILL after the grace of a shutdown.
    ShutDown = 2,
    /// SIGKILL at once.
    Kill = 3,
}

/// Ends the command of a run.
#[derive(Debug)]
pub struct Control {
    wanted: AtomicU8,
    wake: UnixStream,
    woken: UnixStream,
}

impl Control {
    /// Makes the control of a run that goes on.
    pub fn new() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self { wanted: AtomicU8::new(0), wake, woken })
    }

    /// Asks for the end.
    pub fn cancel(&self) {
        self.want(Wanted::Cancel);
    }

    /// Asks for the end because the daemon shuts down.
    pub fn shut_down(&self) {
        self.want(Wanted::ShutDown);
    }

    /// Asks for the end at once.
    pub fn kill(&self) {
        self.want(Wanted::Kill);
    }

    fn want(&self, wanted: Wanted) {
        // A stronger request is not replaced by a weaker one.
        self.wanted.fetch_max(wanted as u8, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the thread that attends the run.
    pub fn wake(&self) {
        // A full buffer means that a byte waits to be read, which is all that a wake needs.
        rustix::io::write(&self.wake, &[1]).ok();
    }

    /// Returns the action that is wanted.
    pub fn wanted(&self) -> Wanted {
        match self.wanted.load(Ordering::SeqCst) {
            0 => Wanted::Nothing,
            1 => Wanted::Cancel,
            2 => Wanted::ShutDown,
            _ => Wanted::Kill,
        }
    }

    /// Returns a descriptor that is readable after a wake.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.woken.as_fd()
    }

    /// Takes the wakes that came.
    pub fn drain(&self) {
        let mut buffer = [0; 64];
        while matches!((&self.woken).read(&mut buffer), Ok(count) if count == buffer.len()) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stronger_request_stays_and_wakes() {
        let control = Control::new().unwrap();
        assert_eq!(control.wanted(), Wanted::Nothing);
        control.kill();
        control.cancel();
        assert_eq!(control.wanted(), Wanted::Kill);
        for _ in 0..1_000_000 {
            control.wake();
        }
        control.drain();
        let mut poll = [rustix::event::PollFd::from_borrowed_fd(control.fd(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec::default();
        assert_eq!(rustix::event::poll(&mut poll, Some(&now)), Ok(0));
    }
}
