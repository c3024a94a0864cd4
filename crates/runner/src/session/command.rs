//! An exec in a detached sandbox: its input, its outputs, and its end.
//!
//! ```text
//!  asked ─▶ runs ── ended ─▶ its output is read to the end ─▶ reported
//!             └─ its client is gone: SIGHUP ─▶ SIGKILL
//! ```

use crate::live::output::Stream;
use crate::secrets::{Redaction, Redactor};
use crate::session::wire::INPUT_WINDOW;
use nexus_driver::Ended;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Input that may wait for it: more than a client of ours sends before the command has taken some.
const MAX_INPUT: usize = 2 * INPUT_WINDOW;
/// Time after a command's end in which output may still come, when something that it left holds its output open.
const LINGER: Duration = Duration::from_millis(100);
/// Interval between looks at a terminal that no process inside holds open.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time from SIGHUP to SIGKILL, for a command whose client is gone.
const KILL_AFTER: Duration = Duration::from_secs(2);

/// An exec with its streams.
pub struct Command {
    /// The client that asked for the command; `None` when the command is to end.
    pub client: Option<u32>,
    /// True if the command has a terminal.
    pub terminal: bool,
    /// The end of the command, when it is known.
    pub ended: Option<Ended>,
    /// The outputs of the command that are still open.
    outputs: [Option<OwnedFd>; 2],
    /// Keep secrets out of the outputs; `None` in a sandbox without secrets.
    redactors: Option<[Redactor; 2]>,
    input: Option<OwnedFd>,
    pending: Vec<u8>,
    no_more: bool,
    linger_until: Option<Instant>,
    paused_until: Option<Instant>,
    kill_at: Option<Instant>,
}

impl Command {
    /// Makes the state of a command that a client asked for.
    pub fn new(client: u32, terminal: bool, outputs: [Option<OwnedFd>; 2], input: Option<OwnedFd>) -> Self {
        Self {
            client: Some(client),
            terminal,
            ended: None,
            outputs,
            redactors: None,
            input,
            pending: Vec::new(),
            no_more: false,
            linger_until: None,
            paused_until: None,
            kill_at: None,
        }
    }

    /// Keeps secrets out of the outputs of the command.
    #[must_use]
    pub fn redacted(mut self, redaction: Option<&Redaction>) -> Self {
        let redactor = |redaction: &Redaction| if self.terminal { redaction.terminal() } else { redaction.stream() };
        self.redactors = redaction.map(|redaction| [redactor(redaction), redactor(redaction)]);
        self
    }

    /// Returns what a client may get of output that was read.
    pub fn passes(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        self.redactors.as_mut().map_or_else(|| bytes.to_vec(), |both| both[stream as usize].push(bytes))
    }

    /// Returns the rest of an output whose end was read: the beginning of a value that is none.
    pub fn rest(&mut self, stream: Stream) -> Vec<u8> {
        self.redactors.as_mut().map_or_else(Vec::new, |both| both[stream as usize].finish())
    }

    /// Uses `master` as input and output of the command.
    pub fn set_terminal(&mut self, master: OwnedFd) -> rustix::io::Result<()> {
        self.input = Some(rustix::io::fcntl_dupfd_cloexec(&master, 0)?);
        self.outputs[0] = Some(master);
        Ok(())
    }

    /// Reports whether the command takes more input.
    pub fn takes_input(&self) -> bool {
        self.pending.len() < MAX_INPUT
    }

    /// Takes input for the command. Returns how many bytes of it no process will read.
    pub fn input(&mut self, bytes: &[u8]) -> usize {
        if self.input.is_some() || self.terminal {
            self.pending.extend_from_slice(bytes);
            return 0;
        }
        bytes.len()
    }

    /// Notes that no more input comes.
    pub fn end_input(&mut self) {
        self.no_more = !self.terminal;
        self.close_input();
    }

    fn close_input(&mut self) {
        if self.no_more && self.pending.is_empty() {
            self.input = None;
        }
    }

    /// Writes what waits. Returns how many bytes of it wait no more.
    pub fn write(&mut self) -> usize {
        let Some(to) = &self.input else { return 0 };
        let gone = match rustix::io::write(to, &self.pending) {
            Ok(count) => count,
            Err(Errno::INTR | Errno::AGAIN) => return 0,
            // No process inside reads it any more.
            Err(_) => self.pending.len(),
        };
        self.pending.drain(..gone);
        self.close_input();
        gone
    }

    /// Reads output, if there is any.
    pub fn read(&mut self, stream: Stream, buffer: &mut [u8], now: Instant) -> usize {
        let Some(from) = &self.outputs[stream as usize] else { return 0 };
        match rustix::io::read(from, buffer) {
            Ok(count) if count > 0 => {
                self.linger_until = self.ended.map(|_| now + LINGER);
                count
            }
            Err(Errno::INTR | Errno::AGAIN) => 0,
            Err(Errno::IO) if self.terminal && self.ended.is_none() => {
                self.paused_until = Some(now + LOOK_EVERY);
                0
            }
            _ => {
                self.outputs[stream as usize] = None;
                0
            }
        }
    }

    /// Closes an output, because its reader left: the command gets SIGPIPE when it writes more.
    pub fn close(&mut self, stream: Stream) {
        self.outputs[stream as usize] = None;
    }

    /// Adds the descriptors to wait for; the outputs only if there is room for more of them.
    pub fn watch<'a>(&'a self, has_room: bool, mut add: impl FnMut(Option<Stream>, BorrowedFd<'a>, PollFlags)) {
        if self.paused_until.is_some() {
            return;
        }
        for (fd, stream) in self.outputs.iter().zip([Stream::Out, Stream::Err]) {
            if let Some(fd) = fd.as_ref().filter(|_| has_room) {
                add(Some(stream), fd.as_fd(), PollFlags::IN);
            }
        }
        if let Some(fd) = self.input.as_ref().filter(|_| !self.pending.is_empty()) {
            add(None, fd.as_fd(), PollFlags::OUT);
        }
    }

    /// Records the end of the command.
    pub fn ended(&mut self, ended: Ended, now: Instant) {
        self.ended = Some(ended);
        self.input = None;
        self.linger_until = Some(now + LINGER);
        self.kill_at = None;
    }

    /// Gives the command up, because its client is gone.
    pub fn abandon(&mut self, now: Instant) {
        self.client = None;
        self.outputs = [None, None];
        self.input = None;
        self.kill_at = self.ended.is_none().then_some(now + KILL_AFTER);
    }

    /// Returns the time when [`Command::tick`] has something to do.
    pub fn next_event(&self) -> Option<Instant> {
        [self.linger_until, self.paused_until, self.kill_at].into_iter().flatten().min()
    }

    /// Looks at the clock. `true` when it is to be killed.
    pub fn tick(&mut self, now: Instant, has_room: bool) -> bool {
        if self.paused_until.is_some_and(|at| now >= at) {
            self.paused_until = None;
        }
        // What its client has no room for is not lost by waiting.
        if !has_room {
            self.linger_until = self.linger_until.map(|_| now + LINGER);
        }
        if self.linger_until.is_some_and(|at| now >= at) {
            self.linger_until = None;
            self.outputs = [None, None];
        }
        let kill = self.kill_at.is_some_and(|at| now >= at);
        if kill {
            self.kill_at = None;
        }
        kill
    }

    /// Reports whether the command has ended and all of its output was read.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() && self.outputs.iter().all(Option::is_none)
    }
}
