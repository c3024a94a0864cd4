//! The client's side of a connection to a supervisor.

use crate::live::attendant::Interrupts;
use crate::live::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use crate::notices::{Notice, Notify};
use crate::session::process::SupervisorProcess;
use crate::session::silent::Silent;
use crate::session::store::{Condition, Entry, StoreError};
use crate::session::wire::{ClientMessage, Reader, ServerMessage, VERSION, put};
use nexus_model::RunId;
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
    /// The sandbox has ended, and its supervisor with it.
    Over(Box<Entry>),
    /// This signal asked the client to end before the supervisor answered.
    Interrupted(u8),
}

/// The first answer of a supervisor, or the event that came instead of one.
pub enum Answer {
    /// A message came.
    Message(ServerMessage),
    /// No message came in time.
    Silent,
    /// This signal asked the client to end.
    Interrupted(u8),
}

/// Time after which a supervisor that has not answered is reported.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts to connect, while too many clients wait already.
const CONNECT_EVERY: Duration = Duration::from_millis(50);

/// Error: a sandbox cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The directory of the sandbox cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The supervisor was killed; how its command ended is not known.
    #[error("the supervisor of the sandbox {id} was killed, and everything inside with it")]
    Lost {
        /// The id of the sandbox.
        id: RunId,
    },
    /// The sandbox was removed.
    #[error("the sandbox {id} was removed")]
    Removed {
        /// The id of the sandbox.
        id: RunId,
    },
    /// The output of the client takes nothing more. No socket gives these errors.
    #[error("The output of the sandbox {id} could not be written: {source}. The sandbox goes on")]
    Output {
        /// The id of the sandbox.
        id: RunId,
        /// The error of the output.
        source: io::Error,
    },
    /// The connection cannot go on.
    #[error("the supervisor of the sandbox {id} cannot be talked to: {source}")]
    Broken {
        /// The id of the sandbox.
        id: RunId,
        /// The error of the connection.
        source: io::Error,
    },
    /// The supervisor does not answer.
    #[error(transparent)]
    Silent(Silent),
}

impl TalkError {
    /// Returns a stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Lost { .. } => "lost",
            Self::Removed { .. } => "no_session",
            Self::Output { .. } => "output",
            Self::Broken { .. } | Self::Silent(_) => "supervisor",
        }
    }
}

/// Error of a greeting.
enum GreetError {
    /// A call failed.
    Io(io::Error),
    /// The supervisor does not answer.
    Silent(Silent),
}

impl From<io::Error> for GreetError {
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
    fn goes_on(&mut self, entry: &Entry, ask: &ClientMessage, tell: Notify<'_>) -> Result<(), Silent> {
        let silent = Silent {
            id: entry.about.id,
            pid: entry.about.pid,
            seconds: ANSWER_WITHIN.as_secs(),
            is_stopped: process_of(entry).is_some_and(|process| process.is_stopped()),
            is_exec: matches!(ask, ClientMessage::Exec { .. }),
        };
        match ask {
            ClientMessage::Stop { .. } if !self.is_resumed && resume(entry, tell) => {
                self.is_resumed = true;
                Ok(())
            }
            ClientMessage::Wait if !silent.is_stopped => {
                if !std::mem::replace(&mut self.is_reported, true) {
                    tell(&Notice::SupervisorSilent(silent));
                }
                Ok(())
            }
            _ => Err(silent),
        }
    }
}

impl Link {
    /// Connects and asks; or finds that it is over. Signals that were caught end the wait for the answer.
    pub fn open(
        entry: &Entry,
        ask: &ClientMessage,
        signals: Option<&dyn Interrupts>,
        tell: Notify<'_>,
    ) -> Result<Found, TalkError> {
        // Between a look at the directory and the connection it may end: again, then.
        for _ in 0..3 {
            let Some(now) = entry.again()? else { return Err(removed(entry)) };
            match now.condition {
                Condition::Ended(_) => return Ok(Found::Over(Box::new(now))),
                Condition::Lost => return Err(lost(&now)),
                Condition::Starting | Condition::Running => {}
            }
            match Self::greet(&now, ask, signals, tell) {
                Ok(found) => return Ok(found),
                Err(GreetError::Io(error)) if is_gone(&error) => std::thread::sleep(Duration::from_millis(20)),
                Err(GreetError::Io(error)) => return Err(broken(entry, error)),
                Err(GreetError::Silent(silent)) => return Err(TalkError::Silent(silent)),
            }
        }
        match entry.again()? {
            Some(now) if matches!(now.condition, Condition::Ended(_)) => Ok(Found::Over(Box::new(now))),
            Some(now) if now.condition == Condition::Lost => Err(lost(&now)),
            Some(_) => Err(broken(entry, io::ErrorKind::ConnectionRefused.into())),
            None => Err(removed(entry)),
        }
    }

    /// Greets the supervisor and asks only then: what one that never answered was not asked for is never done later.
    fn greet(
        entry: &Entry,
        ask: &ClientMessage,
        signals: Option<&dyn Interrupts>,
        tell: Notify<'_>,
    ) -> Result<Found, GreetError> {
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
                silence.goes_on(entry, ask, tell).map_err(GreetError::Silent)?;
                until = Instant::now() + ANSWER_WITHIN;
            }
        };
        let mut link = Self { socket, reader: Reader::default(), out: Vec::new(), terminal: false };
        link.send(&ClientMessage::Hello { version: VERSION })?;
        let hello = loop {
            match link.next_within(signals, ANSWER_WITHIN)? {
                Answer::Message(message) => break message,
                Answer::Silent => silence.goes_on(entry, ask, tell).map_err(GreetError::Silent)?,
                Answer::Interrupted(signal) => return Ok(Found::Interrupted(signal)),
            }
        };
        match hello {
            ServerMessage::Hello { version: VERSION, terminal } => link.terminal = terminal,
            ServerMessage::Hello { .. } => {
                let message = "this sandbox was started by another version of nexus; use that one";
                return Err(io::Error::other(message).into());
            }
            _ => return Err(io::Error::other("the supervisor speaks another protocol").into()),
        }
        link.send(ask)?;
        Ok(Found::Live(link))
    }

    /// Sends something more.
    pub fn send(&mut self, ask: &ClientMessage) -> io::Result<()> {
        put(&mut self.out, ask).map_err(io::Error::other)
    }

    /// Bytes that the supervisor has not taken yet.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Returns the next message of the supervisor, if all of it has come.
    pub fn next_message(&mut self) -> io::Result<Option<ServerMessage>> {
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
    pub fn wait_for_next(&mut self) -> io::Result<ServerMessage> {
        loop {
            if let Answer::Message(message) = self.next_within(None, ANSWER_WITHIN)? {
                return Ok(message);
            }
        }
    }

    /// Waits so long for the next message of the supervisor, or for a signal that asks this process to end.
    pub fn next_within(&mut self, signals: Option<&dyn Interrupts>, within: Duration) -> io::Result<Answer> {
        let until = Instant::now() + within;
        loop {
            if let Some(message) = self.next_message()? {
                return Ok(Answer::Message(message));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Answer::Silent);
            }
            let mut list = vec![PollFd::new(&self.socket, self.flags(true))];
            list.extend(signals.map(|signals| PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN)));
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
pub fn resume(entry: &Entry, tell: Notify<'_>) -> bool {
    let Some(process) = process_of(entry).filter(SupervisorProcess::is_stopped) else { return false };
    tell(&Notice::SupervisorResumed { id: entry.about.id, pid: entry.about.pid });
    process.resume().is_ok()
}

/// Returns a signal that was caught and asks this process to end.
fn taken(signals: Option<&dyn Interrupts>) -> io::Result<Option<u8>> {
    let numbers = signals.map_or(Ok(Vec::new()), Interrupts::take)?;
    Ok(numbers.into_iter().find(|number| matches!(*number, SIGHUP | SIGINT | SIGQUIT | SIGTERM)))
}

/// Waits so long for such a signal.
fn caught(signals: Option<&dyn Interrupts>, within: Duration) -> io::Result<Option<u8>> {
    let mut list: Vec<_> =
        signals.map(|signals| PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN)).into_iter().collect();
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

/// Describes a connection that cannot go on, or an output that takes nothing more.
pub fn broken(entry: &Entry, source: io::Error) -> TalkError {
    let id = entry.about.id;
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => TalkError::Output { id, source },
        _ => TalkError::Broken { id, source },
    }
}

/// Describes a sandbox whose supervisor was killed.
pub fn lost(entry: &Entry) -> TalkError {
    TalkError::Lost { id: entry.about.id }
}

fn removed(entry: &Entry) -> TalkError {
    TalkError::Removed { id: entry.about.id }
}
