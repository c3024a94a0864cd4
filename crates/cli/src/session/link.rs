//! The client's side of a connection to a supervisor.

use super::lost;
use super::process::{Silent, SupervisorProcess};
use super::store::{Condition, Entry};
use super::wire::{Ask, Reader, Tell, VERSION, put};
use crate::failure::Failure;
use crate::run::Signals;
use nexus_runner::live::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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
    /// This signal asked the client to end before the supervisor answered.
    Interrupted(u8),
}

/// Answer of a supervisor, or what came instead of it.
pub enum Answer {
    /// A message came.
    Message(Tell),
    /// No message came in time.
    Silent,
    /// This signal asked the client to end.
    Interrupted(u8),
}

/// Time after which a supervisor that has not answered is reported.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts to connect, while too many clients wait already.
const CONNECT_EVERY: Duration = Duration::from_millis(50);

/// Error: the supervisor cannot be reached.
enum LinkError {
    /// A call failed.
    Io(io::Error),
    /// The supervisor does not answer.
    Silent(Failure),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Steps that were taken about a supervisor that does not answer.
#[derive(Default)]
struct Silence {
    is_resumed: bool,
    is_reported: bool,
}

impl Silence {
    /// Goes on or gives up. A sandbox that is to be ended has its supervisor go on, and one that is waited for may take
    /// long to settle its changes.
    fn goes_on(&mut self, entry: &Entry, ask: &Ask) -> Result<(), Failure> {
        let id = entry.about.id.to_string();
        let silent = Silent {
            id: &id,
            pid: entry.about.pid,
            seconds: ANSWER_WITHIN.as_secs(),
            is_stopped: process_of(entry).is_some_and(|process| process.is_stopped()),
            is_exec: matches!(ask, Ask::Exec { .. }),
        };
        match ask {
            Ask::Stop { .. } if !self.is_resumed && resume(entry) => {
                self.is_resumed = true;
                Ok(())
            }
            Ask::Wait if !silent.is_stopped => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    crate::notices::tell(&format!("{}. nexus waits for it.", silent.failure().message));
                }
                Ok(())
            }
            _ => Err(silent.failure()),
        }
    }
}

impl Link {
    /// Connects and asks; or finds that it is over. Signals that were caught end the wait for the answer.
    pub fn open(entry: &Entry, ask: &Ask, signals: Option<&Signals>) -> Result<Found, Failure> {
        // Between a look at the folder and the connection it may end: once more, then.
        for _ in 0..3 {
            let Some(now) = entry.again()? else { return Err(removed(entry)) };
            match now.condition {
                Condition::Ended(_) => return Ok(Found::Over(Box::new(now))),
                Condition::Lost => return Err(lost(&now)),
                Condition::Starting | Condition::Running => {}
            }
            match Self::greet(&now, ask, signals) {
                Ok(found) => return Ok(found),
                Err(LinkError::Io(error)) if is_gone(&error) => std::thread::sleep(Duration::from_millis(20)),
                Err(LinkError::Io(error)) => return Err(broken(entry, &error)),
                Err(LinkError::Silent(failure)) => return Err(failure),
            }
        }
        match entry.again()? {
            Some(now) if matches!(now.condition, Condition::Ended(_)) => Ok(Found::Over(Box::new(now))),
            Some(now) if now.condition == Condition::Lost => Err(lost(&now)),
            Some(_) => Err(broken(entry, &io::ErrorKind::ConnectionRefused.into())),
            None => Err(removed(entry)),
        }
    }

    /// Greets the supervisor and asks only then: what one that never answered was not asked for is never done later.
    fn greet(entry: &Entry, ask: &Ask, signals: Option<&Signals>) -> Result<Found, LinkError> {
        let mut silence = Silence::default();
        let mut until = Instant::now() + ANSWER_WITHIN;
        let socket = loop {
            match entry.connect() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => break other?,
            }
            if let Some(signal) = caught(signals, CONNECT_EVERY)? {
                return Ok(Found::Interrupted(signal));
            }
            if Instant::now() >= until {
                silence.goes_on(entry, ask).map_err(LinkError::Silent)?;
                until = Instant::now() + ANSWER_WITHIN;
            }
        };
        let mut link = Self { socket, reader: Reader::default(), out: Vec::new(), terminal: false };
        link.send(&Ask::Hello { version: VERSION })?;
        let hello = loop {
            match link.next_within(signals, ANSWER_WITHIN)? {
                Answer::Message(message) => break message,
                Answer::Silent => silence.goes_on(entry, ask).map_err(LinkError::Silent)?,
                Answer::Interrupted(signal) => return Ok(Found::Interrupted(signal)),
            }
        };
        match hello {
            Tell::Hello { version: VERSION, terminal } => link.terminal = terminal,
            Tell::Hello { .. } => {
                let message = "this sandbox was started by another version of nexus; use that one";
                return Err(io::Error::other(message).into());
            }
            _ => return Err(io::Error::other("the supervisor speaks another protocol").into()),
        }
        link.send(ask)?;
        Ok(Found::Live(link))
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
            if let Answer::Message(message) = self.next_within(None, ANSWER_WITHIN)? {
                return Ok(message);
            }
        }
    }

    /// Waits so long for the next message of the supervisor, or for a signal that asks this process to end.
    pub fn next_within(&mut self, signals: Option<&Signals>, within: Duration) -> io::Result<Answer> {
        let until = Instant::now() + within;
        loop {
            if let Some(message) = self.next()? {
                return Ok(Answer::Message(message));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Answer::Silent);
            }
            let mut list = vec![PollFd::new(&self.socket, self.flags(true))];
            list.extend(signals.map(|signals| PollFd::new(signals, PollFlags::IN)));
            match poll(&mut list, Some(&timespec(left))) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let (found, signalled) = (list[0].revents(), list.get(1).is_some_and(|fd| !fd.revents().is_empty()));
            if signalled && let Some(signal) = taken(signals)? {
                return Ok(Answer::Interrupted(signal));
            }
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

/// Finds the supervisor of a sandbox among the processes of this pid namespace.
fn process_of(entry: &Entry) -> Option<SupervisorProcess> {
    SupervisorProcess::find(|| entry.lock_holder()).ok().flatten()
}

/// Lets a supervisor that was stopped go on, so that it can end its sandbox. Returns `false` if it was not stopped.
pub fn resume(entry: &Entry) -> bool {
    let Some(process) = process_of(entry).filter(SupervisorProcess::is_stopped) else { return false };
    crate::notices::tell(&format!(
        "The supervisor of the sandbox {} (process {}) is stopped. nexus lets it go on, so that it can end the sandbox.",
        entry.about.id, entry.about.pid
    ));
    process.resume().is_ok()
}

/// Returns a signal that was caught and asks this process to end.
fn taken(signals: Option<&Signals>) -> io::Result<Option<u8>> {
    let numbers = signals.map_or(Ok(Vec::new()), Signals::take)?;
    Ok(numbers.into_iter().find(|number| matches!(*number, SIGHUP | SIGINT | SIGQUIT | SIGTERM)))
}

/// Waits so long for such a signal.
fn caught(signals: Option<&Signals>, within: Duration) -> io::Result<Option<u8>> {
    let mut list: Vec<_> = signals.map(|signals| PollFd::new(signals, PollFlags::IN)).into_iter().collect();
    match poll(&mut list, Some(&timespec(within))) {
        Ok(_) | Err(Errno::INTR) => taken(signals),
        Err(error) => Err(error.into()),
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Reports whether an error means that the supervisor has just ended.
pub fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    [BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof].contains(&error.kind())
}

/// Describes a connection that cannot go on, or an output that takes nothing more: no socket gives these errors.
pub fn broken(entry: &Entry, error: &io::Error) -> Failure {
    if let Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) = Errno::from_io_error(error) {
        let message =
            format!("The output of the sandbox {} could not be written: {error}. The sandbox goes on", entry.about.id);
        return Failure::refused("output", message, "Look at where the output goes: is the disk full?");
    }
    let message = format!("the supervisor of the sandbox {} cannot be talked to: {error}", entry.about.id);
    Failure::refused("supervisor", message, "nexus ps --all shows how it is")
}

fn removed(entry: &Entry) -> Failure {
    let message = format!("the sandbox {} was removed", entry.about.id);
    Failure::refused("no_session", message, "nexus ps --all shows those that there are")
}
