//! A client that shows output and types: `attach`, `exec` and `logs --follow`.
//!
//! ```text
//!  supervisor ─Output─▶ sink ─▶ stdout, stderr (filtered for a terminal)
//!             ◀─Input── detach keys? ◀─ stdin        signals ─▶ Resize | Signal | leave
//! ```

use crate::signals::Signals;
use crate::terminal::keys::Watch;
use crate::terminal::out::write_unless_closed;
use crate::terminal::raw::{self, Raw};
use crate::terminal::sink::Sink;
use nexus_model::ByteText;
use nexus_runner::live::output::Stream;
use nexus_runner::live::signal::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use nexus_runner::session::link::Link;
use nexus_runner::session::wire::{ClientMessage, INPUT_WINDOW, ServerMessage};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use std::io;

/// Bytes that may wait for the supervisor to take them.
const MAX_TYPED: usize = 1 << 20;

/// Outcome of a client's connection to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The command ended.
    Ended {
        /// The exit code of the command.
        exit: u8,
        /// The text for the user about the end.
        message: String,
    },
    /// The supervisor cannot do what the client asked for.
    Refused {
        /// The exit code.
        exit: u8,
        /// The reason of the refusal.
        message: String,
    },
    /// All was shown that was asked for.
    Done,
    /// The caller left.
    Left,
    /// The client left before its own command had ended, because of this signal.
    CutOff(u8),
}

/// Relation of the client to the command whose output it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The client shows output. A signal ends it.
    Shows,
    /// The command goes on without this client. A signal goes to the command, and the second one ends the client.
    Joins,
    /// The command is the client's own and ends with it. Signals as for [`Part::Joins`].
    Owns,
}

/// The caller's side of a talk.
pub struct View {
    sink: Sink,
    /// Set while standard input is passed on and has not ended.
    input: bool,
    raw: Option<Raw>,
    keys: Option<Watch>,
    part: Part,
    /// Bytes of input that the client's own command has not taken yet.
    untaken: usize,
    /// True after a signal was passed on: the next one ends the client.
    signalled: bool,
}

/// A source of events that the loop waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Link,
    Input,
    Signals,
    Output(Stream),
}

impl View {
    /// Makes the view, with standard input if it is to be passed on, in raw mode if the command has a terminal.
    pub fn new(sink: Sink, input: bool, raw: Option<Raw>, keys: Option<Watch>, part: Part) -> Self {
        Self { sink, input, raw, keys, part, untaken: 0, signalled: false }
    }

    /// Talks until there is an outcome. The terminal is as it was then.
    pub fn talk(mut self, link: &mut Link, signals: &Signals) -> io::Result<Outcome> {
        let outcome = self.until_the_end(link, signals);
        self.sink.put_back();
        self.raw = None;
        outcome
    }

    fn until_the_end(&mut self, link: &mut Link, signals: &Signals) -> io::Result<Outcome> {
        loop {
            while self.takes()
                && let Some(tell) = link.next_message()?
            {
                if let Some(outcome) = self.receive(tell, link)? {
                    self.sink.drain()?;
                    return Ok(outcome);
                }
            }
            for (source, found) in self.wait(link, signals)? {
                let outcome = match source {
                    Source::Link => {
                        if found.contains(PollFlags::OUT) {
                            link.write()?;
                        }
                        if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && self.takes() {
                            link.read()?;
                        }
                        None
                    }
                    Source::Input => self.read_input(link)?,
                    Source::Signals => self.signals(signals.take()?, link)?,
                    Source::Output(stream) => {
                        if self.sink.flush(stream)? {
                            self.reader_left(stream, link)?
                        } else {
                            None
                        }
                    }
                };
                if let Some(outcome) = outcome {
                    return Ok(outcome);
                }
            }
        }
    }

    fn takes(&self) -> bool {
        self.sink.takes(Stream::Out) && self.sink.takes(Stream::Err)
    }

    /// Leaves; but a command of the client's own is only refused further output on that stream, and its exit code is
    /// waited for, as by `nexus run`.
    fn reader_left(&mut self, outlet: Stream, link: &mut Link) -> io::Result<Option<Outcome>> {
        if self.part != Part::Owns || self.raw.is_some() {
            return Ok(Some(self.leave(SIGHUP)));
        }
        self.sink.close(outlet);
        for stream in self.sink.streams_sharing_outlet(outlet) {
            link.send(&ClientMessage::Close { err: stream == Stream::Err })?;
        }
        Ok(None)
    }

    /// Returns the outcome of leaving because of a signal or, as SIGHUP, because the terminal went away.
    fn leave(&self, signal: u8) -> Outcome {
        if self.part == Part::Owns { Outcome::CutOff(signal) } else { Outcome::Left }
    }

    fn receive(&mut self, tell: ServerMessage, link: &mut Link) -> io::Result<Option<Outcome>> {
        Ok(match tell {
            ServerMessage::Output { err, bytes } => {
                let stream = if err { Stream::Err } else { Stream::Out };
                if self.sink.take(stream, &bytes.0)? { self.reader_left(stream, link)? } else { None }
            }
            ServerMessage::Behind { bytes } => {
                self.sink.skip();
                self.sink.drain()?;
                let end = if self.raw.is_some() { "\r\n" } else { "\n" };
                let text = format!("[... {bytes} bytes are not there any more ...]{end}");
                write_unless_closed(&mut crate::terminal::out::stderr(), text.as_bytes())?;
                None
            }
            ServerMessage::Taken { bytes } => {
                self.untaken = self.untaken.saturating_sub(bytes as usize);
                None
            }
            ServerMessage::Hello { .. } | ServerMessage::Live => None,
            ServerMessage::Done => Some(Outcome::Done),
            ServerMessage::Refused { exit, message } => Some(Outcome::Refused { exit, message }),
            ServerMessage::Ended { exit, message } => Some(Outcome::Ended { exit, message }),
        })
    }

    fn wait(&self, link: &Link, signals: &Signals) -> io::Result<Vec<(Source, PollFlags)>> {
        let mut sources = vec![Source::Signals];
        let mut list = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        // Not with empty flags: poll would report a supervisor that hung up again and again while no process reads.
        let flags = link.flags(self.takes());
        if !flags.is_empty() {
            sources.push(Source::Link);
            list.push(PollFd::from_borrowed_fd(link.as_fd(), flags));
        }
        // Keys are always read: there may be those that leave among them.
        let is_room = link.waiting() < MAX_TYPED && self.untaken < INPUT_WINDOW;
        if self.input && (self.keys.is_some() || is_room) {
            sources.push(Source::Input);
            list.push(PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN));
        }
        for stream in [Stream::Out, Stream::Err] {
            if let Some(fd) = self.sink.waiting_for(stream) {
                sources.push(Source::Output(stream));
                list.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
            }
        }
        match poll(&mut list, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let found = sources.into_iter().zip(list.iter().map(PollFd::revents));
        Ok(found.filter(|(_, found)| !found.is_empty()).collect())
    }

    fn read_input(&mut self, link: &mut Link) -> io::Result<Option<Outcome>> {
        let mut buffer = [0u8; 16384];
        let typed = match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) | Err(Errno::IO) => {
                self.input = false;
                if self.raw.is_some() {
                    return Ok(Some(self.leave(SIGHUP)));
                }
                link.send(&ClientMessage::EndInput)?;
                return Ok(None);
            }
            Ok(count) => &buffer[..count],
            Err(Errno::INTR | Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (bytes, leave) = match &mut self.keys {
            Some(keys) => keys.push(typed),
            None => (typed.to_vec(), false),
        };
        // Output that no process reads for so long is lost, as on any terminal.
        if !bytes.is_empty() && link.waiting() < MAX_TYPED {
            if self.part == Part::Owns {
                self.untaken += bytes.len();
            }
            link.send(&ClientMessage::Input(ByteText(bytes)))?;
        }
        Ok(leave.then_some(Outcome::Left))
    }

    fn signals(&mut self, numbers: Vec<u8>, link: &mut Link) -> io::Result<Option<Outcome>> {
        for number in numbers {
            match (number, &self.raw) {
                (SIGWINCH, Some(_)) => link.send(&ClientMessage::Resize(raw::size()))?,
                (SIGTSTP, Some(terminal)) => {
                    terminal.pause()?;
                    kill_process(getpid(), Signal::STOP)?;
                }
                (SIGCONT, Some(terminal)) => {
                    terminal.again()?;
                    link.send(&ClientMessage::Resize(raw::size()))?;
                }
                (SIGWINCH | SIGTSTP | SIGCONT, None) => {}
                (SIGINT | SIGQUIT | SIGTERM, _) if self.part != Part::Shows && !self.signalled => {
                    self.signalled = true;
                    link.send(&ClientMessage::Signal(number))?;
                }
                _ => return Ok(Some(self.leave(number))),
            }
        }
        Ok(None)
    }
}
