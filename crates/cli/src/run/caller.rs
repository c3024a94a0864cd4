//! Whoever a sandbox is run for: a person at `nexus run`, or the clients of a detached one.

use super::inside::Inside;
use super::output::Stream;
use super::sink::Kept;
use nexus_driver::Event;
use rustix::event::PollFlags;
use rustix::fd::BorrowedFd;
use std::io;
use std::time::Instant;

/// Descriptors to wait for, each with what its owner calls it.
pub type Watched<'a, T> = Vec<(T, BorrowedFd<'a>, PollFlags)>;

/// The other side of a [`super::pump`]. Nothing here may wait.
pub trait Caller {
    /// Its name for one of its descriptors.
    type Token: Copy;

    /// Whether it takes output of this stream now; while it does not, the command waits.
    fn takes(&self, stream: Stream) -> bool;
    /// Output of the command. `true` means that nobody reads this stream any more.
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<bool>;
    /// Its descriptors.
    fn watch<'a>(&'a self, inside: &Inside, watched: &mut Watched<'a, Self::Token>);
    /// One of them is ready.
    fn ready(&mut self, token: Self::Token, found: PollFlags, inside: &mut Inside) -> io::Result<()>;
    /// A signal to this process.
    fn signal(&mut self, number: u8, inside: &mut Inside) -> io::Result<()>;
    /// The guest told something that is not about the command itself, or the command has started.
    fn heard(&mut self, event: Heard, inside: &mut Inside) -> io::Result<()>;
    /// When it wants [`Caller::tick`].
    fn next_event(&self) -> Option<Instant>;
    /// The time has come, or something else happened.
    fn tick(&mut self, now: Instant, inside: &mut Inside) -> io::Result<()>;
    /// Nobody waits any longer for what it has not taken.
    fn give_up(&mut self, inside: &mut Inside);
    /// Nothing inside lives any more.
    fn sandbox_is_dead(&mut self);
    /// Whether it has nothing left to do, after the end of the sandbox.
    fn is_done(&self) -> bool;
    /// After the end, once: what it kept of the output. Terminals are as they were before.
    fn finish(&mut self) -> io::Result<Kept>;
}

/// What a caller hears of.
pub enum Heard {
    /// The command runs.
    Started,
    /// About further commands and forwards.
    Other(Event),
}
