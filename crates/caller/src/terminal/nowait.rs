//! Writes to a caller's pipe as much as it takes now, without making it non-blocking.
//!
//! `O_NONBLOCK` belongs to the open file, which the caller and all its other processes share: setting it would change
//! their writes. `RWF_NOWAIT` of pwritev2(2) holds for one call, for pipes since Linux 6.4.

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use std::io::IoSlice;

/// Bytes that a pipe takes without blocking once poll(2) says that it takes any (PIPE_BUF, pipe(7)).
const PIPE_CHUNK: usize = 4096;

/// Offset that stands for the current position of the file: a pipe has no offsets.
const HERE: u64 = u64::MAX;

/// Writes as many bytes as the descriptor takes without waiting, after poll(2) has reported that it is writable.
pub fn write(to: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    match pwritev2(to, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
        // Not this kernel, or not this kind of file: a terminal.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::SPIPE) => {
            rustix::io::write(to, &bytes[..bytes.len().min(PIPE_CHUNK)])
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_pipe_is_filled_and_then_says_that_it_is_full() {
        let (read, there) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let bytes = vec![7; 1 << 20];
        let mut written = write(there.as_fd(), &bytes).unwrap();
        if written > PIPE_CHUNK {
            assert_eq!(write(there.as_fd(), &bytes), Err(Errno::AGAIN));
            assert_eq!(written, rustix::pipe::fcntl_getpipe_size(&there).unwrap());
        }
        let flags = rustix::fs::fcntl_getfl(&there).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "the file is as it was for everybody else");
        let mut buffer = vec![0; 1 << 20];
        while written > 0 {
            written -= rustix::io::read(&read, &mut buffer[..]).unwrap();
        }
    }

    #[test]
    fn a_terminal_takes_a_piece() {
        use rustix::fs::{Mode, OFlags};
        let terminal = rustix::fs::open("/dev/ptmx", OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        assert_eq!(write(terminal.as_fd(), b"hello\n"), Ok(6));
    }
}
