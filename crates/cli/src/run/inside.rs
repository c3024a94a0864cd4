//! What a caller can do with a sandbox while it runs.

use super::output::Stream;
use nexus_driver::frames::TerminalSize;
use nexus_driver::{AskError, ChannelError, LEADER, MoreCommand, Session, Stdio};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Bytes that may wait for the command to read them.
const MOST_INPUT: usize = 64 * 1024;

/// The sandbox, as its caller has it.
pub struct Inside {
    /// Gone when the guest has said its last word.
    pub(super) session: Option<Session>,
    /// Where input for the command goes: a pipe, or the master of its terminal.
    pub(super) input: Option<OwnedFd>,
    pending: Vec<u8>,
    /// No more input will come.
    ended: bool,
    pub(super) terminal: bool,
    pub(super) wishes: Vec<Wish>,
}

/// What the pump does for a caller, when it is its turn again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Nobody reads this stream any more.
    Close(Stream),
    /// The command is to end: this signal, then SIGKILL after the time, or after the run's own grace.
    End { signal: u8, grace: Option<Duration> },
    /// The guest takes no orders.
    Broken,
}

impl Inside {
    pub(super) fn new(session: Session, input: Option<OwnedFd>, terminal: bool) -> Self {
        Self { session: Some(session), input, pending: Vec::new(), ended: false, terminal, wishes: Vec::new() }
    }

    /// One that is over: it takes nothing, and nothing is done.
    pub fn over() -> Self {
        Self { session: None, input: None, pending: Vec::new(), ended: true, terminal: false, wishes: Vec::new() }
    }

    /// Whether the command has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether it takes more input now. Where there is nothing to give it to, it takes all and loses it.
    pub fn takes_input(&self) -> bool {
        self.session.is_none() || self.pending.len() < MOST_INPUT
    }

    /// Gives the command input.
    pub fn input(&mut self, bytes: &[u8]) {
        if !self.ended && self.session.is_some() && (self.input.is_some() || self.terminal) {
            self.pending.extend_from_slice(bytes);
        }
    }

    /// No more input comes. A terminal has no end: there a key says it.
    pub fn end_input(&mut self) {
        self.ended = !self.terminal;
        self.close_if_done();
    }

    /// Resizes the terminal of the command, or of a further one.
    pub fn resize(&mut self, exec: Option<u32>, size: TerminalSize) {
        if let Some(session) = &mut self.session {
            let sent = session.resize(exec.unwrap_or(LEADER), size);
            self.note(&sent);
        }
    }

    /// Signals a further command.
    pub fn signal(&mut self, exec: u32, signal: u8) {
        if let Some(session) = &mut self.session {
            let sent = session.signal(exec, signal);
            self.note(&sent);
        }
    }

    /// Asks the command to end.
    pub fn end(&mut self, signal: u8, grace: Option<Duration>) {
        self.wishes.push(Wish::End { signal, grace });
    }

    /// Nobody reads this stream any more.
    pub fn close(&mut self, stream: Stream) {
        self.wishes.push(Wish::Close(stream));
    }

    /// Starts a further command.
    pub fn exec(&mut self, exec: u32, command: &MoreCommand, stdio: Stdio<'_>) -> Result<(), AskError> {
        match &mut self.session {
            Some(session) => {
                let asked = session.exec(exec, command, stdio);
                self.note_request(asked)
            }
            None => Err(ChannelError::Closed.into()),
        }
    }

    /// Asks for a connection to a port inside.
    pub fn forward(&mut self, forward: u32, port: u16) -> Result<(), AskError> {
        match &mut self.session {
            Some(session) => {
                let asked = session.forward(forward, port);
                self.note_request(asked)
            }
            None => Err(ChannelError::Closed.into()),
        }
    }

    fn note_request(&mut self, asked: Result<(), AskError>) -> Result<(), AskError> {
        if let Err(AskError::Channel(ChannelError::Full)) = &asked {
            self.wishes.push(Wish::Broken);
        }
        asked
    }

    /// Sends what the guest takes now of all that waits for it.
    pub(super) fn flush(&mut self) {
        if let Some(session) = &mut self.session {
            let sent = session.flush();
            self.note(&sent);
        }
    }

    fn note(&mut self, sent: &Result<(), ChannelError>) {
        match sent {
            // What ended it is still to be read.
            Ok(()) | Err(ChannelError::Closed) => {}
            Err(_) => self.wishes.push(Wish::Broken),
        }
    }

    /// Where input waits to be written.
    pub(super) fn waiting_input(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
        if self.pending.is_empty() { None } else { self.input.as_ref().map(AsFd::as_fd) }
    }

    pub(super) fn write_input(&mut self) -> io::Result<()> {
        let Some(to) = &self.input else { return Ok(()) };
        match rustix::io::write(to, &self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            // Nobody inside reads it any more.
            Err(Errno::PIPE | Errno::IO) => self.lose_input(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        self.close_if_done();
        Ok(())
    }

    fn close_if_done(&mut self) {
        if self.ended && self.pending.is_empty() {
            self.input = None;
        }
    }

    fn lose_input(&mut self) {
        self.pending.clear();
        if !self.terminal {
            self.input = None;
        }
    }
}
