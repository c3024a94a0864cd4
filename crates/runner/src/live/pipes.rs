//! Makes the pipes of a command, and writes the kept end of its output.

use crate::live::output::{HeadTail, Stream};
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// Writes the output that a limit kept for the end.
pub fn write_tail(limit: &mut HeadTail, mut write: impl FnMut(Stream, &[u8]) -> io::Result<()>) -> io::Result<()> {
    limit.finish().into_iter().try_for_each(|(stream, piece)| write(stream, &piece))
}

/// Makes a pipe as large as the kernel lets an ordinary user have it. The end that is read never blocks: the command may
/// open its own end for reading (`/proc/self/fd/1`) and take what poll(2) has just announced.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&read, rustix::fs::OFlags::NONBLOCK)?;
    open_to_the_command(&write)?;
    // Over the user's quota of pipe pages the kernel says no, and the default size does as well, only slower.
    match rustix::pipe::fcntl_setpipe_size(&read, 1 << 20) {
        Ok(_) | Err(Errno::PERM | Errno::BUSY) => Ok((read, write)),
        Err(error) => Err(error.into()),
    }
}

/// Returns our end and the command's end of its stdin: a pipe that we fill, or `/dev/null`. In the place of
/// that one the guest opens the sandbox's own, which the command may open by name.
pub fn stdin_pair(pass: bool) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    if !pass {
        return Ok((None, File::open("/dev/null")?.into()));
    }
    let (there, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    open_to_the_command(&there)?;
    rustix::fs::fcntl_setfl(&ours, rustix::fs::OFlags::NONBLOCK)?;
    Ok((Some(ours), there))
}

/// Lets the command open its end of a pipe by name (`/dev/stdout`, `/dev/stdin`), which root makes and the sandbox's own user
/// opens. The right to reach the name, a link in `/proc` of a process that has it open, is decided there.
fn open_to_the_command(end: &OwnedFd) -> io::Result<()> {
    let all = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH;
    Ok(rustix::fs::fchmod(end, all)?)
}
