//! Pipes of the command's output, and writers to the caller.

use crate::run::output::{HeadTail, Stream};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::io::{self, Write};

/// Writes what a limit kept for the end.
pub fn write_tail(limit: &mut HeadTail, mut write: impl FnMut(Stream, &[u8]) -> io::Result<()>) -> io::Result<()> {
    limit.finish().into_iter().try_for_each(|(stream, piece)| write(stream, &piece))
}

/// A writer that is told of, and forgives, a reader that left.
pub fn write_unless_closed(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Makes a pipe as large as the kernel lets an ordinary user have it. The end that is read never blocks: the command may
/// open its own end for reading (`/proc/self/fd/1`) and take what poll(2) has just announced.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
    crate::run::streams::open_to_the_command(&write)?;
    // Over the user's quota of pipe pages the kernel says no, and the default size does as well, only slower.
    match rustix::pipe::fcntl_setpipe_size(&read, 1 << 20) {
        Ok(_) | Err(Errno::PERM | Errno::BUSY) => Ok((read, write)),
        Err(error) => Err(error.into()),
    }
}
