//! The attendant of a run: the peer of the pump. It is a person in the foreground, the clients of a supervisor, or the
//! sender of a daemon.

use crate::live::control::SandboxControl;
use crate::live::input::InputSource;
use crate::live::output::Stream;
use crate::secrets::Redaction;
use nexus_driver::{Event, Listeners};
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use std::io;
use std::time::Instant;

/// Lists descriptors to wait for, each with the name that its owner has for it.
pub type Watched<'a, T> = Vec<(T, BorrowedFd<'a>, PollFlags)>;

/// The kept output of both streams, and the number of bytes that were dropped.
pub type KeptOutput = (Option<[Vec<u8>; 2]>, u64);

/// Gets the output of a sandbox and controls it. No function may wait.
pub trait Attendant {
    /// Names one of the descriptors of the attendant.
    type Token: Copy;

    /// Hands over standard input that is passed on as the command reads it. Input that the attendant reads itself comes
    /// through [`SandboxControl::input`]. Asked once, before the command starts.
    fn input_source(&mut self) -> io::Result<Option<InputSource>> {
        Ok(None)
    }
    /// Takes what keeps secrets out of output. The streams of the main command are redacted already; an attendant that starts execs
    /// redacts theirs.
    fn redact_commands(&mut self, _redaction: &Redaction) {}
    /// Reports whether output of a stream is taken now; while it is not, the command waits.
    fn takes(&self, stream: Stream) -> bool;
    /// Takes output of the command. `true` means that the stream is not read any more.
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool>;
    /// Lists the descriptors to wait for.
    fn watch<'a>(&'a self, inside: &SandboxControl, watched: &mut Watched<'a, Self::Token>);
    /// Acts on a descriptor that is ready.
    fn ready(&mut self, token: Self::Token, found: PollFlags, inside: &mut SandboxControl) -> io::Result<()>;
    /// Acts on a signal to this process.
    fn signal(&mut self, number: u8, inside: &mut SandboxControl) -> io::Result<()>;
    /// Acts on an event of the sandbox.
    fn event(&mut self, event: SandboxEvent, inside: &mut SandboxControl) -> io::Result<()>;
    /// Returns the time of the next [`Attendant::tick`].
    fn next_event(&self) -> Option<Instant>;
    /// Does what is due by now.
    fn tick(&mut self, now: Instant, inside: &mut SandboxControl) -> io::Result<()>;
    /// Gives up output that was not taken: the run does not wait any longer.
    fn give_up(&mut self, inside: &mut SandboxControl);
    /// Says that the command has ended, and that the run waits for the kernel to take the sandbox apart.
    fn sandbox_lingers(&mut self);
    /// Notes that every process of the sandbox is dead.
    fn sandbox_is_dead(&mut self);
    /// Reports whether nothing is left to do, after the end of the sandbox.
    fn is_done(&self) -> bool;
    /// Ends the attendance and returns the kept output. Terminals are as they were before.
    fn finish(&mut self) -> io::Result<KeptOutput>;
}

/// An event of a sandbox that concerns its attendant.
pub enum SandboxEvent {
    /// The command has started.
    Started,
    /// Something happened to an exec or a forward.
    Other(Event),
}

/// Signals to this process, as something to wait for.
pub trait Interrupts {
    /// Returns a descriptor that is readable when a signal came.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Takes the numbers of the signals since the last call.
    fn take(&self) -> io::Result<Vec<u8>>;
}

/// Serves the network of a sandbox.
pub trait NetworkServer {
    /// Takes the listeners that the sandbox handed out. After an error the sandbox has to end.
    fn serve(&mut self, listeners: Listeners) -> io::Result<()>;
}
