//! Puts the caller's terminal into raw mode, and restores it on every exit path.
//!
//! ```text
//!  enter ─▶ raw ── drop, panic ──▶ as before, what was typed and not read is thrown away
//!            └─ stop (SIGTSTP) ─▶ as before ─▶ stopped ─▶ continue ─▶ raw
//! ```
//! What was typed for the sandbox, or by a terminal that a sandbox made answer, must not be read by the caller's shell:
//! so the input queue is flushed with the change back.

use nexus_driver::frames::TerminalSize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;
use std::time::{Duration, Instant};

/// The size of a terminal that tells none.
pub const USUAL_SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };

/// Longest time for which typed bytes are thrown away at the end.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// Longest time to wait for the next piece of typed bytes.
const A_PIECE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Standard input in raw mode, as long as this lives.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Switches standard input to raw mode.
    pub fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let raw = Self { before };
        raw.again()?;
        let before = raw.before.clone();
        let usual = std::panic::take_hook();
        // A release build does not unwind, so that `drop` is not enough.
        std::panic::set_hook(Box::new(move |info| {
            restore(&before).ok();
            usual(info);
        }));
        Ok(raw)
    }

    /// Switches to raw mode again, after a stop.
    pub fn again(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        // Not once the output is drained: a terminal that stands still would hold this process up.
        Ok(tcsetattr(stdin(), OptionalActions::Now, &raw)?)
    }

    /// Restores the mode from before, for the time of a stop.
    pub fn pause(&self) -> io::Result<()> {
        restore(&self.before)
    }
}

impl Drop for Raw {
    /// Restores the mode from before. The terminal may be gone; then there is nothing to restore.
    fn drop(&mut self) {
        restore(&self.before).ok();
    }
}

fn restore(before: &Termios) -> io::Result<()> {
    throw_away()?;
    // At once, and the input is flushed in a call of its own: the call that does both waits for the output first.
    tcsetattr(stdin(), OptionalActions::Now, before)?;
    Ok(tcflush(stdin(), QueueSelector::IFlush)?)
}

/// Throws away what was typed. A flush empties only what a reader could have read by now; what the other side wrote
/// beyond that comes after it, in pieces. So it is done again until nothing comes, for a while: the user may go on
/// typing.
fn throw_away() -> io::Result<()> {
    let end = Instant::now() + MAX_WAIT;
    loop {
        let waits = rustix::io::ioctl_fionread(stdin())? > 0;
        tcflush(stdin(), QueueSelector::IFlush)?;
        if !waits || Instant::now() >= end {
            return Ok(());
        }
        match poll(&mut [PollFd::new(&stdin(), PollFlags::IN)], Some(&A_PIECE)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reports whether an error means that the terminal went away: one that hung up answers EIO to every call
/// (tty_ioctl(4)).
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Reports whether a descriptor is that of a terminal that went away. Other files refuse the question with ENOTTY.
pub fn is_gone_from(fd: BorrowedFd<'_>) -> bool {
    tcgetattr(fd).is_err_and(|error| error == Errno::IO)
}

/// Returns the size of the caller's terminal, or [`USUAL_SIZE`] if none of the three streams has one.
pub fn size() -> TerminalSize {
    let all = [tcgetwinsize(stdin()), tcgetwinsize(stdout()), tcgetwinsize(stderr())];
    let known = all.into_iter().flatten().find(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or(USUAL_SIZE, |size| TerminalSize { rows: size.ws_row, cols: size.ws_col })
}
