//! The host's side of the commands of a sandbox: the plan's main command, and execs beside it.
//!
//! ```text
//!  start ─▶ (Layer)? ─▶ Up ─▶ (Terminal)? ─▶ Started ─▶ Ended                     the main command; its end is the sandbox's
//!                        └─▶ NotStarted (set-up, proof, exec) ◀──┘
//!  exec ──▶ (Terminal)? ─▶ Command(Started | NotStarted) ─▶ Command(Ended)        each exec
//!  forward ─▶ Forwarded | ForwardFailed
//! ```
//! Nothing here waits for the guest but [`Session::recv`]: what it does not take waits in `outbox`.
//!
//! Any other order, or a number that was not asked for, ends the session as [`NotStarted::Protocol`]: the guest is
//! hostile to the host. What order is right is decided in `ledger`, what a descriptor must be in `received`.

use crate::ledger::{Ledger, MAIN_COMMAND, Refused};
use crate::not_started::NotStarted;
use crate::outbox::Outbox;
use crate::received::{self, Listeners};
use crate::sandbox::{ChangeSource, Sandbox};
use crate::{Channel, ChannelError};
use nexus_channel::Partial;
use nexus_channel::frames::{ExecRequest, GuestFrame, HostFrame, TerminalSize, VERSION};
use nexus_model::network::Network;
use nexus_model::proof::{self, Expectation, ProofItem};
use nexus_model::{ByteText, ExitStatus, Plan};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Descriptors that a command has as stdin, stdout and stderr.
#[derive(Debug, Clone, Copy)]
pub enum Stdio<'a> {
    /// These three descriptors.
    Pipes([BorrowedFd<'a>; 3]),
    /// A terminal of its own inside; its master comes as [`Event::Terminal`].
    Terminal(TerminalSize),
}

impl<'a> Stdio<'a> {
    fn size(&self) -> Option<TerminalSize> {
        match self {
            Self::Pipes(_) => None,
            Self::Terminal(size) => Some(*size),
        }
    }

    fn descriptors(&self) -> &[BorrowedFd<'a>] {
        match self {
            Self::Pipes(three) => three,
            Self::Terminal(_) => &[],
        }
    }
}

/// A command beside the main command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoreCommand {
    /// The command and its arguments.
    pub argv: Vec<ByteText>,
    /// The whole environment.
    pub env: Vec<(ByteText, ByteText)>,
    /// Working directory inside.
    pub cwd: ByteText,
}

/// End of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Code or signal.
    pub status: ExitStatus,
    /// Processor time of it and its waited-for children, in microseconds.
    pub cpu_us: u64,
    /// Peak memory of its largest process, in bytes.
    pub max_rss_bytes: u64,
}

/// Event that the guest reported.
#[derive(Debug)]
pub enum Event {
    /// The sandbox stands.
    Up,
    /// The upper directory of a layer in memory.
    Layer(OwnedFd),
    /// Listeners at which the sandbox meets the egress; come before `Up`. Until the egress accepts them, connections
    /// wait.
    Listeners(Listeners),
    /// Socket at which the command asks for names without an egress; may come before `Up`. A UDP socket, non-blocking.
    Names(OwnedFd),
    /// The main command runs; its proof.
    Started(Vec<ProofItem>),
    /// The main command did not start, or the guest broke the protocol: the sandbox is to be ended.
    NotStarted(NotStarted),
    /// The main command ended, and with it the sandbox.
    Ended(Ended),
    /// The master of a command's terminal, non-blocking.
    Terminal {
        /// Number of the command.
        exec: u32,
        /// Reads what it shows, writes what is typed. EIO is the end of output.
        master: OwnedFd,
    },
    /// The guest asked the main command to end for its time limit, because this process had not.
    OutOfTime,
    /// Reports on an exec.
    Command {
        /// Number of the exec.
        exec: u32,
        /// Event of that exec.
        event: CommandEvent,
    },
    /// A TCP socket to a port inside, non-blocking. It may still be connecting: when it becomes writable, SO_ERROR
    /// tells.
    Forwarded {
        /// Number of the request.
        forward: u32,
        /// Socket that is connected to the port inside.
        socket: OwnedFd,
    },
    /// The connection to a port inside could not be made.
    ForwardFailed {
        /// Number of the request.
        forward: u32,
        /// Error number, as errno(3) lists them.
        errno: i32,
    },
}

/// Progress of an exec.
#[derive(Debug)]
pub enum CommandEvent {
    /// It runs; its proof.
    Started(Vec<ProofItem>),
    /// It did not start. The sandbox goes on.
    NotStarted(NotStarted),
    /// It ended. What it left in the background lives on.
    Ended(Ended),
}

/// The guest was not asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The number was used already, or too much is unanswered; nothing was sent.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The channel failed.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// All commands of one sandbox. It owns its end of the channel, so it may live as long as anybody likes.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    outbox: Outbox,
    expect: Vec<Expectation>,
    ledger: Ledger,
    /// Expects a [`ProcessView`] with the listeners.
    by_program: bool,
    /// The host ports whose listeners come.
    host_ports: Vec<u16>,
    /// The guest knows a time limit, and has not reported its end.
    has_limit: bool,
    /// The part of the next frame that has arrived.
    partial: Partial,
}

impl Session {
    /// Asks for the plan's command at once; the guest reads it when it stands.
    pub fn start(sandbox: &Sandbox, plan: &Plan, stdio: Stdio<'_>) -> Result<Self, NotStarted> {
        Self::start_with(sandbox, plan, &[], stdio)
    }

    /// Gives the sandbox the values of the plan's secrets, in their order, and asks for the plan's command.
    pub fn start_with(sandbox: &Sandbox, plan: &Plan, secrets: &[&[u8]], stdio: Stdio<'_>) -> Result<Self, NotStarted> {
        if secrets.len() != plan.secrets.len() {
            return Err(NotStarted::Secrets { named: plan.secrets.len(), given: secrets.len() });
        }
        let (channel, expect) = (sandbox.channel.clone(), sandbox.expect.clone());
        let command = MoreCommand { argv: plan.argv.clone(), env: plan.env.clone(), cwd: plan.cwd.clone() };
        let layer = matches!(sandbox.changes, ChangeSource::Descriptor(None));
        let ledger = Ledger::new(stdio.size().is_some(), layer, plan.network.has_egress());
        let by_program = plan.network == Network::EgressByProgram;
        let outbox = Outbox::new(channel.clone());
        let host_ports = plan.host_ports.clone();
        let (has_limit, partial) = (false, Partial::default());
        let mut session = Self { channel, outbox, expect, ledger, by_program, host_ports, has_limit, partial };
        let request = session.request(MAIN_COMMAND, command, stdio.size());
        let values = secrets.iter().try_for_each(|value| session.outbox.post_secret(value));
        let hello = values.and_then(|()| session.outbox.post(&HostFrame::Hello { version: VERSION }, &[]));
        match hello.and_then(|()| session.outbox.post(&HostFrame::Exec(request), stdio.descriptors())) {
            // It may have ended with a reason; that is read as the first event.
            Ok(()) | Err(ChannelError::Closed) => Ok(session),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the guest the time limit of the main command, which it keeps where this process is stopped.
    pub fn end_within(&mut self, timeout: Duration, grace: Duration) -> Result<(), ChannelError> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.has_limit = true;
        let (timeout_ms, grace_ms) = (millis(timeout), millis(grace));
        match self.outbox.post(&HostFrame::EndWithin { timeout_ms, grace_ms }, &[]) {
            // It may have ended with a reason; that is read as the first event.
            Ok(()) | Err(ChannelError::Closed) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Asks for an exec under a number that was never used here. The guest proves the confinement again.
    pub fn exec(&mut self, exec: u32, command: &MoreCommand, stdio: Stdio<'_>) -> Result<(), AskError> {
        if !self.outbox.has_room() {
            return Err(Refused::Busy.into());
        }
        self.ledger.ask(exec, stdio.size().is_some())?;
        let request = self.request(exec, command.clone(), stdio.size());
        let sent = self.outbox.post(&HostFrame::Exec(request), stdio.descriptors());
        if let Err(ChannelError::Frame(_)) = sent {
            // Too long to be sent, so the guest will never answer.
            self.ledger.withdraw(exec);
        }
        Ok(sent?)
    }

    fn request(&mut self, exec: u32, command: MoreCommand, terminal: Option<TerminalSize>) -> ExecRequest {
        let MoreCommand { argv, env, cwd } = command;
        ExecRequest { exec, is_main: exec == MAIN_COMMAND, argv, env, cwd, proof: self.expect.clone(), terminal }
    }

    /// Asks for a connection to a TCP port of the sandbox's loopback, under a number that is not waiting for an answer.
    pub fn forward(&mut self, forward: u32, port: u16) -> Result<(), AskError> {
        if !self.outbox.has_room() {
            return Err(Refused::Busy.into());
        }
        self.ledger.ask_forward(forward)?;
        Ok(self.outbox.post(&HostFrame::Forward { forward, port }, &[])?)
    }

    /// Gives the terminal of a command another size; does nothing when it has ended.
    pub fn resize(&mut self, exec: u32, size: TerminalSize) -> Result<(), ChannelError> {
        self.outbox.post(&HostFrame::Resize { exec, size }, &[])
    }

    /// Sends what the guest has not taken yet, as far as it takes it now. To be called when [`Session::interest`] was
    /// found, and at [`Session::next_event`].
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        self.outbox.flush()
    }

    /// Returns what to poll the session for.
    #[must_use]
    pub fn interest(&self) -> PollFlags {
        let writes = if self.outbox.wants_to_write() { PollFlags::OUT } else { PollFlags::empty() };
        PollFlags::IN | writes
    }

    /// Returns when [`Session::flush`] is to be called even if nothing was found.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.outbox.next_event()
    }

    /// Waits for the next thing that the guest tells. `Err` means that it is lost.
    pub fn recv(&mut self) -> Result<Event, ChannelError> {
        loop {
            if let Some(event) = self.recv_ready()? {
                return Ok(event);
            }
            let left = self.next_event().map(|at| at.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
            match poll(&mut [PollFd::new(&self.channel, self.interest())], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match self.flush() {
                // What ended it is still to be read.
                Ok(()) | Err(ChannelError::Closed) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Receives the next event of the guest without waiting, so that a guest that stops in the middle of a frame does
    /// not stop the thread that serves it. `None` until the event is whole; more may be there after `Some`.
    pub fn recv_ready(&mut self) -> Result<Option<Event>, ChannelError> {
        let Some((frame, descriptors)) = self.channel.receive_ready::<GuestFrame>(&mut self.partial)? else {
            return Ok(None);
        };
        let said = kind(&frame);
        let evaluated = self.evaluate(frame, descriptors);
        Ok(Some(evaluated.unwrap_or_else(|| Event::NotStarted(NotStarted::Protocol(said.to_owned())))))
    }

    /// `None` for what does not belong here.
    fn evaluate(&mut self, frame: GuestFrame, descriptors: Vec<OwnedFd>) -> Option<Event> {
        let ledger = &mut self.ledger;
        if frame == GuestFrame::Listeners {
            ledger.listeners()?;
            return received::listeners(descriptors, self.by_program, &self.host_ports).map(Event::Listeners);
        }
        let descriptor = received::at_most_one(descriptors)?;
        Some(match (frame, descriptor) {
            (GuestFrame::Hello { version: VERSION }, None) => {
                ledger.up()?;
                Event::Up
            }
            (GuestFrame::Layer, Some(upper)) => {
                ledger.layer()?;
                Event::Layer(upper)
            }
            (GuestFrame::Names, Some(socket)) => {
                ledger.names()?;
                Event::Names(received::datagram(socket)?)
            }
            (GuestFrame::OutOfTime, None) => std::mem::take(&mut self.has_limit).then_some(Event::OutOfTime)?,
            (GuestFrame::SetupFailed { step, errno, detail }, None) if !ledger.is_up() => {
                Event::NotStarted(NotStarted::SetUp { step, errno, detail })
            }
            (GuestFrame::Terminal { exec }, Some(master)) => {
                ledger.terminal(exec)?;
                Event::Terminal { exec, master: received::master(master)? }
            }
            (GuestFrame::Started { exec, proof }, None) if proof::is_proved(&self.expect, &proof) => {
                ledger.started(exec)?;
                about(exec, CommandEvent::Started(proof))
            }
            (GuestFrame::ProofFailed { exec, proof }, None) => {
                ledger.not_started(exec)?;
                about(exec, CommandEvent::NotStarted(NotStarted::Proof { proof }))
            }
            (GuestFrame::ExecFailed { exec, errno, stage }, None) => {
                ledger.not_started(exec)?;
                about(exec, CommandEvent::NotStarted(NotStarted::Exec { stage, errno }))
            }
            (GuestFrame::Exited { exec, status, cpu_us, max_rss_bytes }, None) => {
                ledger.ended(exec)?;
                about(exec, CommandEvent::Ended(Ended { status, cpu_us, max_rss_bytes }))
            }
            (GuestFrame::Forwarded { forward }, Some(socket)) => {
                ledger.forwarded(forward)?;
                Event::Forwarded { forward, socket: received::tcp_socket(socket)? }
            }
            (GuestFrame::ForwardFailed { forward, errno }, None) => {
                ledger.forwarded(forward)?;
                Event::ForwardFailed { forward, errno }
            }
            _ => return None,
        })
    }

    /// Signals a command and its process group; does nothing when it has ended.
    pub fn signal(&mut self, exec: u32, signal: u8) -> Result<(), ChannelError> {
        self.outbox.post(&HostFrame::Signal { exec: Some(exec), signal }, &[])
    }

    /// Signals the main command and its process group.
    pub fn signal_main_command(&mut self, signal: u8) -> Result<(), ChannelError> {
        self.signal(MAIN_COMMAND, signal)
    }

    /// Signals everything inside.
    pub fn signal_all(&mut self, signal: u8) -> Result<(), ChannelError> {
        self.outbox.post(&HostFrame::Signal { exec: None, signal }, &[])
    }
}

/// Readable when there is something to [`Session::recv`].
impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

fn about(exec: u32, event: CommandEvent) -> Event {
    match event {
        event if exec != MAIN_COMMAND => Event::Command { exec, event },
        CommandEvent::Started(proof) => Event::Started(proof),
        CommandEvent::NotStarted(reason) => Event::NotStarted(reason),
        CommandEvent::Ended(ended) => Event::Ended(ended),
    }
}

/// Returns the name of a frame; its content is the guest's, may be long, and has no place in a message.
fn kind(frame: &GuestFrame) -> &'static str {
    match frame {
        GuestFrame::Hello { .. } => "Hello",
        GuestFrame::SetupFailed { .. } => "SetupFailed",
        GuestFrame::Started { .. } => "Started (twice, unasked or without a whole proof)",
        GuestFrame::ProofFailed { .. } => "ProofFailed",
        GuestFrame::ExecFailed { .. } => "ExecFailed",
        GuestFrame::Exited { .. } => "Exited",
        GuestFrame::Layer => "Layer",
        GuestFrame::Terminal { .. } => "Terminal",
        GuestFrame::Forwarded { .. } => "Forwarded",
        GuestFrame::ForwardFailed { .. } => "ForwardFailed",
        GuestFrame::Listeners => "Listeners",
        GuestFrame::Names => "Names",
        GuestFrame::OutOfTime => "OutOfTime (twice, or without a time limit)",
    }
}
