//! Holds the command's output back while a person is asked on the caller's terminal.
//!
//! ```text
//!  asker:  Open ─request─▶ Wanted ──────────────▶ Held ─release─▶ Open        any ─end─▶ Over
//!  pump:                     └ writes what it has, reads nothing more ┘
//! ```
//! Otherwise the command could hide the question, draw another one over it, and have the answer to its own question
//! counted for the one that the person never saw. The pump reads nothing while a question is open, so the pipes of the
//! command fill and the command waits: nothing is lost, and nothing grows here.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Says who uses the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The command's output passes.
    Open,
    /// A question waits until the output that was read is written.
    Wanted,
    /// A question is open, and no output is written.
    Held,
    /// Nothing inside lives, and no question is opened any more.
    Over,
}

/// The agreement between the thread that asks and the pump.
pub struct Hold {
    phase: Mutex<Phase>,
    pump: OwnedFd,
    asker: OwnedFd,
}

impl Hold {
    /// Lets output pass.
    pub fn new() -> io::Result<Self> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self { phase: Mutex::new(Phase::Open), pump: event()?, asker: event()? })
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether the pump may read output of the command.
    pub fn lets_read(&self) -> bool {
        matches!(*self.phase(), Phase::Open | Phase::Over)
    }

    /// Returns the descriptor on which the pump is woken.
    pub fn pump_fd(&self) -> BorrowedFd<'_> {
        self.pump.as_fd()
    }

    /// Takes note that the pump was woken.
    pub fn pump_woken(&self) {
        clear(&self.pump);
    }

    /// Tells the asker that the terminal is free, once everything that the pump had read is written.
    pub fn hand_over(&self, drained: bool) {
        let mut phase = self.phase();
        if *phase == Phase::Wanted && drained {
            *phase = Phase::Held;
            wake(&self.asker);
        }
    }

    /// Ends an open question and refuses further ones: the sandbox has ended.
    pub fn end(&self) {
        *self.phase() = Phase::Over;
        wake(&self.asker);
        wake(&self.pump);
    }

    /// Wakes the asker so that it checks its conditions again.
    pub fn nudge(&self) {
        wake(&self.asker);
    }

    /// Takes the terminal for a question. `None`: the sandbox has ended, `gone` became true, or the terminal took
    /// nothing until `until`.
    pub fn take(&self, until: Instant, gone: impl Fn() -> bool) -> io::Result<Option<Taken<'_>>> {
        {
            let mut phase = self.phase();
            if *phase == Phase::Over {
                return Ok(None);
            }
            *phase = Phase::Wanted;
        }
        // From here on the drop gives the terminal back, whatever happens.
        let taken = Taken { hold: self };
        wake(&self.pump);
        loop {
            match *self.phase() {
                Phase::Held => return Ok(Some(taken)),
                Phase::Over => return Ok(None),
                Phase::Open | Phase::Wanted => {}
            }
            if gone() || Instant::now() >= until {
                return Ok(None);
            }
            self.wait(None, until)?;
        }
    }

    /// Waits for a nudge, for `also` to be readable, or for `until`; reports whether `also` is readable.
    fn wait(&self, also: Option<BorrowedFd<'_>>, until: Instant) -> io::Result<bool> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut list = vec![PollFd::new(&self.asker, PollFlags::IN)];
        list.extend(also.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match poll(&mut list, Some(&timeout)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if !list[0].revents().is_empty() {
            clear(&self.asker);
        }
        Ok(list.get(1).is_some_and(|also| !also.revents().is_empty()))
    }

    /// Waits until the sandbox has ended or `until`; reports whether it has ended.
    pub fn is_over_by(&self, until: Instant) -> io::Result<bool> {
        loop {
            if *self.phase() == Phase::Over {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            self.wait(None, until)?;
        }
    }
}

/// The terminal belongs to a question until this value is dropped.
pub struct Taken<'a> {
    hold: &'a Hold,
}

impl Taken<'_> {
    /// Waits for typed bytes, a nudge, or `until`; reports whether `terminal` is readable.
    pub fn wait(&self, terminal: BorrowedFd<'_>, until: Instant) -> io::Result<bool> {
        self.hold.wait(Some(terminal), until)
    }

    /// Waits for a nudge or until `until`. Typed keys do not end the wait.
    pub fn wait_without_keys(&self, until: Instant) -> io::Result<()> {
        self.hold.wait(None, until).map(|_| ())
    }

    /// Reports whether the sandbox has ended.
    pub fn is_over(&self) -> bool {
        *self.hold.phase() == Phase::Over
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut phase = self.hold.phase();
        if *phase != Phase::Over {
            *phase = Phase::Open;
        }
        drop(phase);
        wake(&self.hold.pump);
    }
}

fn wake(event: &OwnedFd) {
    // It fails only when it counts 2^64 wake-ups already, and then it is readable.
    rustix::io::write(event, &1u64.to_ne_bytes()).ok();
}

fn clear(event: &OwnedFd) {
    // Another wake-up may come right after it; a spurious one costs a turn.
    rustix::io::read(event, &mut [0u8; 8]).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn a_question_waits_for_the_output_that_was_read() {
        let hold = Hold::new().unwrap();
        assert!(hold.lets_read());
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                let taken = hold.take(soon(), || false).unwrap().unwrap();
                assert!(!hold.lets_read());
                drop(taken);
            });
            let end = soon();
            while hold.lets_read() {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
            hold.hand_over(false);
            assert_eq!(*hold.phase(), Phase::Wanted);
            hold.hand_over(true);
            asker.join().unwrap();
        });
        assert!(hold.lets_read());
    }

    #[test]
    fn a_question_ends_with_the_sandbox_or_with_its_client() {
        let hold = Hold::new().unwrap();
        assert!(hold.take(soon(), || true).unwrap().is_none());
        assert!(hold.lets_read(), "the output goes on");
        assert!(hold.take(Instant::now(), || false).unwrap().is_none());
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| hold.take(soon(), || false).unwrap().is_none());
            hold.end();
            assert!(asker.join().unwrap());
        });
        assert!(hold.take(soon(), || false).unwrap().is_none());
        assert!(hold.lets_read() && hold.is_over_by(soon()).unwrap());
    }
}
