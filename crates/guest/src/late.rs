//! The time limit of the main command, which the guest keeps where the host does not.
//!
//! ```text
//!  started ── timeout + MARGIN ──▶ SIGTERM, unless the host sent a signal to all ── grace ──▶ the guest ends
//! ```
//! The host keeps the limit itself, and better: it knows of later requests, and reports why the command was ended. It
//! cannot while it is stopped: by Ctrl-Z, by output to a terminal with `tostop`, or by SIGSTOP.

use std::time::{Duration, Instant};

/// The time by which the host comes first.
const MARGIN: Duration = Duration::from_secs(1);

/// Step that the time limit demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Send SIGTERM to everything inside.
    Terminate,
    /// End the sandbox.
    End,
}

/// The time limit.
#[derive(Debug)]
pub struct Late {
    timeout: Duration,
    grace: Duration,
    since: Instant,
    is_asked: bool,
}

impl Late {
    /// Begins to count.
    pub fn new(timeout_ms: u64, grace_ms: u64) -> Self {
        let (timeout, grace) = (Duration::from_millis(timeout_ms), Duration::from_millis(grace_ms));
        Self { timeout, grace, since: Instant::now(), is_asked: false }
    }

    /// Counts from now on: the command has started.
    pub fn note_started(&mut self) {
        self.since = Instant::now();
    }

    /// Notes that everything inside was asked to end.
    pub fn note_asked(&mut self) {
        self.is_asked = true;
    }

    /// Returns the time of the next thing to do. A time that the clock cannot hold never comes.
    pub fn next(&self) -> Option<Instant> {
        let ask_at = self.since.checked_add(MARGIN)?.checked_add(self.timeout)?;
        if self.is_asked { ask_at.checked_add(self.grace) } else { Some(ask_at) }
    }

    /// Returns what is to be done at this time.
    pub fn due(&self, now: Instant) -> Option<Due> {
        self.next().filter(|at| now >= *at).map(|_| if self.is_asked { Due::End } else { Due::Terminate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_comes_after_the_request_and_its_grace() {
        let mut late = Late::new(2000, 1000);
        let after = |late: &Late, ms| late.due(late.since + Duration::from_millis(ms));
        assert_eq!(
            (after(&late, 2999), after(&late, 3000), after(&late, 9000)),
            (None, Some(Due::Terminate), Some(Due::Terminate))
        );
        late.note_asked();
        assert_eq!((after(&late, 3999), after(&late, 4000)), (None, Some(Due::End)));
        let never = Late::new(u64::MAX, u64::MAX);
        assert_eq!(never.due(never.since + Duration::from_secs(1_000_000)), None);
        let mut endless = Late::new(0, u64::MAX);
        endless.note_asked();
        assert_eq!(endless.next().map(|_| ()), endless.since.checked_add(Duration::from_millis(u64::MAX)).map(|_| ()));
    }
}
