//! Raw mode on the caller's terminal, and the way back on every way out.
//!
//! ```text
//!  enter ─▶ raw ── drop, panic ──▶ as before, what was typed and not read is thrown away
//!            └─ stop (SIGTSTP) ─▶ as before ─▶ stopped ─▶ continue ─▶ raw
//! ```
//! What was typed for the sandbox, or by a terminal that a sandbox made answer, must not be read by the caller's shell:
//! so the input queue is flushed with the change back.

use nexus_model::frames::TerminalSize;
use rustix::stdio::{stderr, stdin, stdout};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;

/// The size of a terminal that tells none.
pub const USUAL_SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };

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

    /// Raw once more, after a stop.
    pub fn again(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(stdin(), OptionalActions::Drain, &raw)?)
    }

    /// As it was, for the time of a stop.
    pub fn pause(&self) -> io::Result<()> {
        restore(&self.before)
    }
}

impl Drop for Raw {
    /// The terminal may be gone; then there is nothing to put back.
    fn drop(&mut self) {
        restore(&self.before).ok();
    }
}

fn restore(before: &Termios) -> io::Result<()> {
    Ok(tcsetattr(stdin(), OptionalActions::Flush, before)?)
}

/// Whether an error means that the terminal went away: one that hung up answers EIO to every call (tty_ioctl(4)).
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// How large the caller's terminal is.
pub fn size() -> TerminalSize {
    let all = [tcgetwinsize(stdin()), tcgetwinsize(stdout()), tcgetwinsize(stderr())];
    let known = all.into_iter().flatten().find(|size| size.ws_row > 0 && size.ws_col > 0);
    known.map_or(USUAL_SIZE, |size| TerminalSize { rows: size.ws_row, cols: size.ws_col })
}
