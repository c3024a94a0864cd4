//! Standard input that is read ahead of the command, by a thread of its own.
//!
//! ```text
//!  standard input ──read(2), may wait──▶ thread ──▶ pipe ──▶ the run's own loop, which never waits
//! ```
//! poll(2) calls every file and device readable, and a read of a file of another machine or of a program (NFS, FUSE) can
//! wait for as long as that one likes. In a thread of its own it holds up neither the time limit nor a signal; the end
//! of the process ends it. Of a pipe another process may take what poll(2) has announced.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The end of the pipe from which the run reads.
pub struct Feeder {
    read: OwnedFd,
    failed: Arc<Mutex<Option<Errno>>>,
}

impl Feeder {
    /// Starts the thread. It reads `from`, which must stay what it is until the process ends.
    pub fn start(from: BorrowedFd<'static>) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&read, true)?;
        let failed = Arc::new(Mutex::new(None));
        let shared_failure = Arc::clone(&failed);
        std::thread::Builder::new().name("input".to_owned()).spawn(move || {
            if let Err(error) = pass_on(from, &write) {
                *shared_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            }
        })?;
        Ok(Self { read, failed })
    }

    /// Returns the error that ended the input, once the pipe is at its end.
    pub fn error(&self) -> Option<Errno> {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Feeder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

/// Passes on until the end of the input, or until the pipe has no reader.
fn pass_on(from: BorrowedFd<'_>, to: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = [0u8; 16384];
    loop {
        let count = match rustix::io::read(from, &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            // The caller's pipe or terminal may not wait.
            Err(Errno::AGAIN) => {
                let mut waits = [rustix::event::PollFd::new(&from, rustix::event::PollFlags::IN)];
                rustix::event::poll(&mut waits, None)
                    .map(drop)
                    .or_else(|error| (error == Errno::INTR).then_some(()).ok_or(error))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut left = &buffer[..count];
        while !left.is_empty() {
            match rustix::io::write(to, left) {
                Ok(count) => left = &left[count..],
                Err(Errno::INTR) => {}
                Err(Errno::PIPE) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
