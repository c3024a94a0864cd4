//! Counts the output that is left in the pipes of a sandbox that has ended. A command can pass the write end of a pipe to a process outside, over
//! a socket in a directory that both see. That process may go on writing; what it writes after the death of everything inside is not output
//! of this run.

use crate::live::output::Stream;
use rustix::fd::OwnedFd;

/// More bytes than the two buffers of a terminal hold. The number that the kernel reports leaves out one of the buffers.
const MAX_IN_A_TERMINAL: usize = 64 << 10;
/// The largest pipe that an ordinary user can have, for a descriptor that reports no number.
const MAX_IN_A_PIPE: usize = 1 << 20;

/// The number of bytes that are still to be read of each stream of a dead sandbox.
#[derive(Default)]
pub(super) struct LeftInPipes {
    out: usize,
    err: usize,
}

impl LeftInPipes {
    /// Notes how many bytes each stream holds. To be called one time, when everything inside is dead.
    pub(super) fn note(out: Option<&OwnedFd>, err: Option<&OwnedFd>, has_terminal: bool) -> Self {
        let held = |fd: Option<&OwnedFd>| fd.map_or(0, in_pipe);
        Self { out: if has_terminal { MAX_IN_A_TERMINAL } else { held(out) }, err: held(err) }
    }

    /// Returns the number of bytes of a stream that are still to be read.
    pub(super) fn of(&mut self, stream: Stream) -> &mut usize {
        if stream == Stream::Out { &mut self.out } else { &mut self.err }
    }

    /// Counts bytes that were read of a stream.
    pub(super) fn count_read(&mut self, stream: Stream, count: usize) {
        let left = self.of(stream);
        *left = left.saturating_sub(count);
    }
}

fn in_pipe(fd: &OwnedFd) -> usize {
    rustix::io::ioctl_fionread(fd).ok().and_then(|count| usize::try_from(count).ok()).unwrap_or(MAX_IN_A_PIPE)
}
