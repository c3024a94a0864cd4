//! Passes the caller's standard input to the command, and takes no byte of it that the command did not read.
//!
//! ```text
//!  caller's pipe, socket, file ── copies ──▶ pipe of the command ──▶ the command
//!        ▲                                        │ how much of it is unread
//!        └───────── take what was read ───────────┘
//! ```
//! The command reads from a pipe of ours, so that it never holds a descriptor of the caller; what is unread there at the end is
//! still with the caller. Our own end for reading tells how much that is, and keeps a command that closes its input from
//! breaking the pipe.

mod source;

use source::resize;
pub use source::{InputSource, can_be_left};

use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// The size of the command's pipe at first, as the kernel makes it.
const USUAL: usize = 64 * 1024;
/// The size of both pipes for a command that reads much.
const WIDE: usize = 1 << 20;
/// Bytes after which a command reads much.
const MUCH: u64 = 256 * 1024;
/// The least that is tried when the pipe of the command should be full: it may have become larger.
const PAGE: usize = 4096;
/// Copies in one turn of the pump; then output and signals have their turn.
const MAX_IN_A_TURN: usize = 8;
/// The shortest time between two looks at what the command has read.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest time. A writer may wait that long for room, when the command reads what little of its bytes filled the
/// caller's pipe.
const LONGEST: Duration = Duration::from_millis(64);

/// The caller's standard input fails: the command must not take what it has for the whole. It is the inner error of an
/// [`io::Error`], so that it is not taken for one of the output.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InputLost(pub io::Error);

impl From<InputLost> for io::Error {
    fn from(lost: InputLost) -> Self {
        Self::new(lost.0.kind(), lost)
    }
}

/// Passes standard input to the command.
pub struct Feed {
    source: InputSource,
    /// The end for writing; closed when the command has everything.
    to: Option<OwnedFd>,
    /// The command's end, which tells how much is unread.
    end: OwnedFd,
    /// Bytes in the pipe that the command had not read at the last look, and that are still with the caller.
    given: usize,
    /// Bytes that the command has read so far.
    read: u64,
    /// The size of the command's pipe.
    room: usize,
    /// The pipe of the command takes nothing now.
    is_full: bool,
    /// The time of the next look.
    due: Option<Instant>,
    delay: Duration,
    buffer: Vec<u8>,
}

impl Feed {
    /// Makes a feed from the source into a pipe, of which `to` never blocks.
    #[must_use]
    pub fn new(source: InputSource, to: OwnedFd, end: OwnedFd) -> Self {
        Self {
            source,
            to: Some(to),
            end,
            given: 0,
            read: 0,
            room: USUAL,
            is_full: false,
            due: Some(Instant::now()),
            delay: SHORTEST,
            buffer: vec![0; USUAL + PAGE],
        }
    }

    /// Lists the descriptors to wait for.
    pub fn watch(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let room = self.to.as_ref().filter(|_| self.is_full).map(|to| (to.as_fd(), PollFlags::OUT));
        let bell = self.source.bell().filter(|_| self.to.is_some()).map(|bell| (bell, PollFlags::IN));
        room.into_iter().chain(bell)
    }

    /// Returns the time of the next [`Self::step`].
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.due
    }

    /// Takes the bytes that the command has read from the caller, and passes new bytes to the command.
    pub fn step(&mut self) -> io::Result<()> {
        self.due = None;
        self.source.silence()?;
        self.settle()?;
        if self.read > MUCH && self.room == USUAL {
            self.widen()?;
        }
        for _ in 0..MAX_IN_A_TURN {
            if !self.give()? {
                self.due = self.next_look();
                return Ok(());
            }
        }
        self.due = Some(Instant::now());
        Ok(())
    }

    /// Takes the bytes that the command has read from the caller's input.
    pub fn settle(&mut self) -> io::Result<()> {
        let unread = usize::try_from(rustix::io::ioctl_fionread(&self.end)?).unwrap_or(usize::MAX);
        let read = read_by_command(self.given, unread);
        if read > 0 {
            self.source.take(read, &mut self.buffer)?;
            self.given -= read;
            self.read += read as u64;
            self.delay = SHORTEST;
        }
        Ok(())
    }

    fn widen(&mut self) -> io::Result<()> {
        self.room = WIDE;
        self.buffer.resize(WIDE + PAGE, 0);
        self.source.widen(WIDE)?;
        self.to.as_ref().map_or(Ok(()), |to| resize(to, WIDE))
    }

    /// Gives the command more. Reports whether there may be more to give at once.
    fn give(&mut self) -> io::Result<bool> {
        let Some(to) = &self.to else { return Ok(false) };
        // Asked before the bytes: what comes in between is not behind the end.
        let has_ended = self.source.has_ended(self.given)?;
        let wanted = self.room.saturating_sub(self.given).max(PAGE);
        let bytes = self
            .source
            .copy(self.given, wanted, &mut self.buffer)
            .map_err(|error| io::Error::from(InputLost(error)))?;
        self.is_full = false;
        if bytes.is_empty() {
            if has_ended {
                self.to = None;
            }
            return Ok(false);
        }
        match rustix::io::write(to, &self.buffer[bytes]) {
            Ok(count) => self.given += count,
            Err(Errno::AGAIN) => {
                self.is_full = true;
                return Ok(false);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Returns the time of the next look, where no descriptor wakes: the caller's pipe may be full of what the command has read
    /// since, and its writer waits.
    fn next_look(&mut self) -> Option<Instant> {
        if self.to.is_none() || self.is_full || self.given == 0 {
            return None;
        }
        let delay = self.delay;
        self.delay = (delay * 2).min(LONGEST);
        Some(Instant::now() + delay)
    }
}

/// Returns the number of given bytes that the command has read. It may write into its own pipe: then what it wrote counts
/// as unread, and the caller keeps more.
fn read_by_command(given: usize, unread: usize) -> usize {
    given.saturating_sub(unread)
}

#[cfg(test)]
mod tests;
