//! The client's side of a connection to a supervisor.

use super::lost;
use super::store::{Condition, Entry};
use super::wire::{Ask, Reader, Tell, VERSION, put};
use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixStream;

/// A connection to a supervisor.
pub struct Link {
    socket: UnixStream,
    reader: Reader,
    out: Vec<u8>,
    /// True if the command of the sandbox has a terminal.
    pub terminal: bool,
}

/// Result of connecting to a sandbox.
pub enum Found {
    /// The supervisor answers on this link.
    Live(Link),
    /// There is no supervisor any more: the sandbox has ended.
    Over(Box<Entry>),
}

impl Link {
    /// Connects and asks; or finds that it is over.
    pub fn open(entry: &Entry, ask: &Ask) -> Result<Found, Failure> {
        // Between a look at the folder and the connection it may end: once more, then.
        for _ in 0..3 {
            let Some(now) = entry.again()? else { return Err(removed(entry)) };
            match now.condition {
                Condition::Ended(_) => return Ok(Found::Over(Box::new(now))),
                Condition::Lost => return Err(lost(&now)),
                Condition::Starting | Condition::Running => {}
            }
            match Self::greet(&now, ask) {
                Ok(link) => return Ok(Found::Live(link)),
                Err(error) if is_gone(&error) => std::thread::sleep(std::time::Duration::from_millis(20)),
                Err(error) => return Err(broken(entry, &error)),
            }
        }
        match entry.again()? {
            Some(now) if matches!(now.condition, Condition::Ended(_)) => Ok(Found::Over(Box::new(now))),
            Some(now) if now.condition == Condition::Lost => Err(lost(&now)),
            Some(_) => Err(broken(entry, &io::ErrorKind::ConnectionRefused.into())),
            None => Err(removed(entry)),
        }
    }

    fn greet(entry: &Entry, ask: &Ask) -> io::Result<Self> {
        let socket = entry.connect()?;
        let mut link = Self { socket, reader: Reader::default(), out: Vec::new(), terminal: false };
        put(&mut link.out, &Ask::Hello { version: VERSION }).map_err(io::Error::other)?;
        put(&mut link.out, ask).map_err(io::Error::other)?;
        link.socket.set_nonblocking(true)?;
        match link.wait_for_next()? {
            Tell::Hello { version: VERSION, terminal } => link.terminal = terminal,
            Tell::Hello { .. } => {
                let message = "this sandbox was started by another version of nexus; use that one";
                return Err(io::Error::other(message));
            }
            _ => return Err(io::Error::other("the supervisor speaks another protocol")),
        }
        Ok(link)
    }

    /// Sends something more.
    pub fn send(&mut self, ask: &Ask) -> io::Result<()> {
        put(&mut self.out, ask).map_err(io::Error::other)
    }

    /// Bytes that the supervisor has not taken yet.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Returns the next message of the supervisor, if all of it has come.
    pub fn next(&mut self) -> io::Result<Option<Tell>> {
        self.reader.next().map_err(io::Error::other)
    }

    /// Reads what came; an end is an error, since every talk ends with a word.
    pub fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0u8; 16 * 1024];
        match rustix::io::read(&self.socket, &mut buffer) {
            Ok(0) | Err(Errno::CONNRESET) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.reader.push(&buffer[..count]);
                Ok(())
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what goes.
    pub fn write(&mut self) -> io::Result<()> {
        match rustix::net::send(&self.socket, &self.out, rustix::net::SendFlags::NOSIGNAL) {
            Ok(count) => drop(self.out.drain(..count)),
            Err(Errno::INTR | Errno::AGAIN) => {}
            // What it said before is still to be read.
            Err(Errno::PIPE | Errno::CONNRESET) => self.out.clear(),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns the poll(2) flags to wait for; those for reading only if `reads` is set.
    pub fn flags(&self, reads: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads);
        flags.set(PollFlags::OUT, !self.out.is_empty());
        flags
    }

    /// Waits for the next message of the supervisor.
    pub fn wait_for_next(&mut self) -> io::Result<Tell> {
        loop {
            if let Some(tell) = self.next()? {
                return Ok(tell);
            }
            let mut list = [PollFd::new(&self.socket, self.flags(true))];
            match poll(&mut list, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let found = list[0].revents();
            if found.contains(PollFlags::OUT) {
                self.write()?;
            }
            if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.read()?;
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reports whether an error means that the supervisor has just ended.
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    [BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof].contains(&error.kind())
}

/// Describes a connection that cannot go on.
pub fn broken(entry: &Entry, error: &io::Error) -> Failure {
    let message = format!("the supervisor of the sandbox {} cannot be talked to: {error}", entry.about.id);
    Failure::refused("supervisor", message, "nexus ps --all shows how it is")
}

fn removed(entry: &Entry) -> Failure {
    let message = format!("the sandbox {} was removed", entry.about.id);
    Failure::refused("no_session", message, "nexus ps --all shows those that there are")
}
