//! Controls a sandbox while it runs, for its attendant.

use crate::live::output::Stream;
use nexus_driver::frames::TerminalSize;
use nexus_driver::{AskError, ChannelError, MAIN_COMMAND, MoreCommand, Session, Stdio};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Bytes that may wait for the command to read them.
const MAX_INPUT: usize = 64 * 1024;

/// Passes the requests of an attendant to the sandbox.
pub struct SandboxControl {
    /// The channel to the guest, until the end of the command is known.
    pub(super) session: Option<Session>,
    /// Takes input for the command: a pipe, or the master of its terminal.
    pub(super) input: Option<OwnedFd>,
    pending: Vec<u8>,
    /// No more input will come.
    ended: bool,
    pub(super) terminal: bool,
    pub(super) actions: Vec<Action>,
}

/// Asks the pump for something in its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Closes a stream of which nothing is read any more.
    Close(Stream),
    /// Ends the command: this signal, then SIGKILL after the time, or after the run's own grace.
    End {
        /// The first signal.
        signal: u8,
        /// The time until SIGKILL.
        grace: Option<Duration>,
    },
    /// Ends a guest that takes no messages.
    Broken,
}

impl SandboxControl {
    pub(super) fn new(session: Session, input: Option<OwnedFd>, terminal: bool) -> Self {
        Self { session: Some(session), input, pending: Vec::new(), ended: false, terminal, actions: Vec::new() }
    }

    /// Makes one that is over: it takes nothing, and nothing is done.
    pub fn over() -> Self {
        Self { session: None, input: None, pending: Vec::new(), ended: true, terminal: false, actions: Vec::new() }
    }

    /// Reports whether the command has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.terminal
    }

    /// Reports whether the command takes more input now. After the end of the command it takes all and loses it.
    pub fn takes_input(&self) -> bool {
        self.session.is_none() || self.pending.len() < MAX_INPUT
    }

    /// Gives the command input.
    pub fn input(&mut self, bytes: &[u8]) {
        if !self.ended && self.session.is_some() && (self.input.is_some() || self.terminal) {
            self.pending.extend_from_slice(bytes);
        }
    }

    /// Ends the input. A terminal has no end: there a key ends it.
    pub fn end_input(&mut self) {
        self.ended = !self.terminal;
        self.close_if_done();
    }

    /// Resizes the terminal of the command, or of an exec.
    pub fn resize(&mut self, exec: Option<u32>, size: TerminalSize) {
        if let Some(session) = &mut self.session {
            let sent = session.resize(exec.unwrap_or(MAIN_COMMAND), size);
            self.note(&sent);
        }
    }

    /// Signals an exec.
    pub fn signal(&mut self, exec: u32, signal: u8) {
        if let Some(session) = &mut self.session {
            let sent = session.signal(exec, signal);
            self.note(&sent);
        }
    }

    /// Asks the command to end.
    pub fn end(&mut self, signal: u8, grace: Option<Duration>) {
        self.actions.push(Action::End { signal, grace });
    }

    /// Closes a stream of which nothing is read any more.
    pub fn close(&mut self, stream: Stream) {
        self.actions.push(Action::Close(stream));
    }

    /// Starts an exec.
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
            self.actions.push(Action::Broken);
        }
        asked
    }

    /// Sends as much of the waiting messages as the guest takes now.
    pub(super) fn flush(&mut self) {
        if let Some(session) = &mut self.session {
            let sent = session.flush();
            self.note(&sent);
        }
    }

    fn note(&mut self, sent: &Result<(), ChannelError>) {
        match sent {
            // The reason is still to be read.
            Ok(()) | Err(ChannelError::Closed) => {}
            Err(_) => self.actions.push(Action::Broken),
        }
    }

    /// Returns the descriptor for input, while some waits to be written.
    pub(super) fn waiting_input(&self) -> Option<rustix::fd::BorrowedFd<'_>> {
        if self.pending.is_empty() { None } else { self.input.as_ref().map(AsFd::as_fd) }
    }

    pub(super) fn write_input(&mut self) -> io::Result<()> {
        let Some(to) = &self.input else { return Ok(()) };
        match rustix::io::write(to, &self.pending) {
            Ok(count) => drop(self.pending.drain(..count)),
            // No process inside reads it any more.
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
