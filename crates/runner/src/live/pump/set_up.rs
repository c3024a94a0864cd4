//! The bound of the set-up: a first process that is stopped or frozen before it reports the start would be waited for
//! without an end.

use super::Pump;
use crate::live::attendant::Attendant;
use nexus_driver::NotStarted;
use nexus_model::ExitReason;
use std::io;
use std::time::Instant;

impl<A: Attendant> Pump<'_, A> {
    /// Returns the time at which a sandbox that has reported no start is ended; `None` once it has, or is ended already.
    pub(super) fn set_up_until(&self) -> Option<Instant> {
        let waits = self.outcome.spawned.is_none()
            && self.outcome.not_started.is_none()
            && self.outcome.reason == ExitReason::Exit
            && !self.is_dead;
        waits.then(|| self.started + self.bounds.set_up)
    }

    /// Ends a sandbox whose time for the set-up is over.
    pub(super) fn check_set_up(&mut self, now: Instant) -> io::Result<()> {
        if self.set_up_until().is_none_or(|until| now < until) {
            return Ok(());
        }
        self.outcome.reason = ExitReason::DriverFailed;
        self.outcome.not_started = Some(NotStarted::Silent { within: self.bounds.set_up });
        self.end_now()
    }
}
