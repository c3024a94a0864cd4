//! The output that a dead sandbox left in its pipes. A write end that left the sandbox, over a socket in a directory that it
//! shares, stays open for as long as its holder likes, and its holder may go on writing: bytes that come after the death of
//! everything inside are not of this run.

use super::{Caller, Pump};
use crate::run::output::Stream;
use rustix::fd::OwnedFd;
use std::io;

/// More bytes than the two buffers of a terminal hold. The number that the kernel reports leaves out one of the buffers.
const MAX_IN_A_TERMINAL: usize = 64 << 10;
/// The largest pipe that an ordinary user can have, for a descriptor that reports no number.
const MAX_IN_A_PIPE: usize = 1 << 20;

/// The number of bytes that are still to be read of each stream of a dead sandbox.
#[derive(Default)]
pub(super) struct Left {
    out: usize,
    err: usize,
}

impl Left {
    fn of(&mut self, stream: Stream) -> &mut usize {
        if stream == Stream::Out { &mut self.out } else { &mut self.err }
    }
}

impl<C: Caller> Pump<'_, C> {
    /// Notes how many bytes each stream holds. To be called once, when everything inside is dead.
    pub(super) fn note_what_is_left(&mut self) {
        let held = |fd: &Option<OwnedFd>| fd.as_ref().map_or(0, in_pipe);
        let out = if self.inside.has_terminal() { MAX_IN_A_TERMINAL } else { held(&self.out) };
        self.left = Left { out, err: held(&self.err) };
    }

    /// Reads what there was at the death, as far as the caller takes it. poll(2) would wait for the writers outside.
    pub(super) fn read_what_the_dead_left(&mut self) -> io::Result<()> {
        for stream in [Stream::Out, Stream::Err] {
            while self.dead && self.caller.takes(stream) && self.has_output(stream) {
                self.read(stream)?;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that the next read of a stream may take.
    pub(super) fn may_read(&mut self, stream: Stream) -> usize {
        if self.dead { (*self.left.of(stream)).min(self.buffer.len()) } else { self.buffer.len() }
    }

    /// Counts bytes that were read of a stream.
    pub(super) fn has_read(&mut self, stream: Stream, count: usize) {
        let left = self.left.of(stream);
        *left = left.saturating_sub(count);
    }

    fn has_output(&self, stream: Stream) -> bool {
        if stream == Stream::Out { self.out.is_some() } else { self.err.is_some() }
    }
}

fn in_pipe(fd: &OwnedFd) -> usize {
    rustix::io::ioctl_fionread(fd).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(MAX_IN_A_PIPE)
}
