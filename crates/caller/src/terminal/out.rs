//! Writes to the caller's stdout and stderr, and never waits in the kernel.
//!
//! ```text
//!  a terminal ──opened again, O_NONBLOCK──────▶ an open file of our own       a pipe ──RWF_NOWAIT──▶ the caller's
//!  full ─▶ poll ─┬─▶ room: goes on
//!                └─▶ the run was ended (time limit, signal) and nothing moves for [`LAST_WAIT`]: TimedOut
//! ```
//! A terminal that stands still (Ctrl-S, a frozen connection, a copy mode) takes nothing for as long as its user
//! likes, and this process has a time limit and signals to watch. `O_NONBLOCK` belongs to the open file, which the
//! caller shares; opening the terminal again makes another one.

use super::nowait;
use nexus_runner::live::output::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Instant;

pub use nexus_runner::live::pump::LAST_WAIT;

/// Interval at which a waiting writer checks the flag: a signal may come just before poll(2).
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Largest number of bytes of one write to a terminal that cannot be opened again. A terminal that poll(2) calls
/// writable has room for 256, and a byte may become several there (a tab, a line end).
const SMALL_PIECE: usize = 16;

/// Set when the run was ended from outside: from then on every wait for a reader is bounded.
static IS_ENDED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Set when such a wait was in vain: then there is no further one.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Returns the flag that says so, for a signal handler.
pub fn ended_flag() -> Arc<AtomicBool> {
    Arc::clone(&IS_ENDED)
}

/// Reports whether the run was ended by its time limit or a signal.
pub fn is_ended() -> bool {
    IS_ENDED.load(Ordering::SeqCst)
}

/// Notes that the caller takes nothing: from now on what cannot be written at once is not written.
pub fn give_up() {
    IS_GIVEN_UP.store(true, Ordering::SeqCst);
}

/// Kind of file behind a descriptor of the caller.
enum Kind {
    /// A file: a write of any size is done at once.
    Regular,
    /// A terminal, opened again by this process.
    Reopened(OwnedFd),
    /// A terminal of another user, which this one may not open.
    Foreign,
    /// A pipe, a socket, a device.
    Other,
}

fn kind(stream: Stream) -> &'static Kind {
    static KINDS: [OnceLock<Kind>; 2] = [const { OnceLock::new() }; 2];
    KINDS[stream as usize].get_or_init(|| {
        let fd = caller(stream);
        if rustix::termios::isatty(fd) {
            return open_again(fd).map_or(Kind::Foreign, Kind::Reopened);
        }
        match rustix::fs::fstat(fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::RegularFile | FileType::BlockDevice) => Kind::Regular,
            _ => Kind::Other,
        }
    })
}

/// Opens a terminal for writing, as an open file of our own.
fn open_again(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    use rustix::fd::AsRawFd;
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let same = |path: &str| {
        let opened = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        // The kernel reports the foreground group of the controlling terminal alone (ioctl_tty(2)), and one of outside this PID namespace is an error.
        let group = |fd: BorrowedFd<'_>| rustix::termios::tcgetpgrp(fd).ok();
        // The controlling terminal may be another one than this.
        (path != "/dev/tty" || group(opened.as_fd()).is_some_and(|one| group(fd) == Some(one))).then_some(opened)
    };
    same(&format!("/proc/self/fd/{}", fd.as_raw_fd())).or_else(|| same("/dev/tty"))
}

/// Returns the descriptor of the caller for a stream.
pub fn caller(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Out => rustix::stdio::stdout(),
        Stream::Err => rustix::stdio::stderr(),
    }
}

/// Reports whether a write of any size is done at once.
pub fn is_regular(stream: Stream) -> bool {
    matches!(kind(stream), Kind::Regular)
}

/// Writes what goes now. EAGAIN when nothing does.
pub fn write_ready(stream: Stream, bytes: &[u8]) -> Result<usize, Errno> {
    match kind(stream) {
        Kind::Regular => rustix::io::write(caller(stream), bytes),
        Kind::Reopened(fd) => rustix::io::write(fd, bytes),
        Kind::Foreign => {
            let mut room = [PollFd::from_borrowed_fd(caller(stream), PollFlags::OUT)];
            match poll(&mut room, Some(&Timespec::default()))? {
                0 => Err(Errno::AGAIN),
                _ => rustix::io::write(caller(stream), &bytes[..bytes.len().min(SMALL_PIECE)]),
            }
        }
        Kind::Other => nowait::write(caller(stream), bytes),
    }
}

/// A writer to the caller that waits in poll(2) and nowhere else, and, once the run was ended, not for long.
#[derive(Debug, Clone, Copy)]
pub struct Writer(pub Stream);

/// Returns a writer to standard output that never waits in the kernel.
pub fn stdout() -> Writer {
    Writer(Stream::Out)
}

/// Returns a writer to standard error that never waits in the kernel.
pub fn stderr() -> Writer {
    Writer(Stream::Err)
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            // Without poll(2) first, a pipe of an old kernel would wait in the write.
            let mut room = [PollFd::from_borrowed_fd(caller(self.0), PollFlags::OUT)];
            // A document comes in many pieces: after a wait in vain none of them is waited for.
            let is_given_up = is_ended() && IS_GIVEN_UP.load(Ordering::SeqCst);
            let timeout = if is_given_up { Timespec::default() } else { LOOK_EVERY };
            match poll(&mut room, Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => match write_ready(self.0, bytes) {
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    other => return Ok(other?),
                },
                Err(error) => return Err(error.into()),
            }
            let is_late = || IS_GIVEN_UP.load(Ordering::SeqCst) || began.elapsed() >= LAST_WAIT;
            if is_ended() && is_late() {
                give_up();
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes all bytes; a reader that left is not an error.
pub fn write_unless_closed(to: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    match to.write_all(bytes).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
