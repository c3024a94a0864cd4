//! A sandbox that has ended or was killed and is not gone: the kernel still frees what its processes held.
//!
//! ```text
//!  ended by itself ──1 s──▶ said, and waited for ──┐ killed meanwhile
//!  killed ──────────1 s──────────────────────────▶ left to a later command: no process of it runs any more code of its own
//! ```

use super::{Caller, Pump};
use crate::run::tell;
use std::io;
use std::time::{Duration, Instant};

/// Time that the kernel has to take a sandbox apart before a person hears of it.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// The end of a sandbox, as far as this process knows it.
#[derive(Debug, Default)]
pub(super) struct End {
    /// When the main command had ended.
    ended: Option<Instant>,
    /// When everything inside was killed.
    killed: Option<Instant>,
    /// The wait was reported.
    is_reported: bool,
}

impl End {
    /// Notes that the main command has ended.
    pub(super) fn has_ended(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
    }

    fn report_at(&self) -> Option<Instant> {
        self.ended.or(self.killed).filter(|_| !self.is_reported).map(|at| at + GONE_WITHIN)
    }
}

impl<C: Caller> Pump<'_, C> {
    /// Kills everything inside.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.end.killed.get_or_insert_with(Instant::now);
        self.sandbox.process.kill()
    }

    /// Returns when a sandbox that is not gone is reported or left.
    pub(super) fn lingers_at(&self) -> Option<Instant> {
        let at = self.end.report_at().into_iter().chain(self.leave_at()).min();
        at.filter(|_| !self.dead)
    }

    /// Returns when a killed sandbox is left to a later command. A layer in memory would be gone with this process.
    fn leave_at(&self) -> Option<Instant> {
        let may_leave =
            self.outcome.spawned.is_some() && self.outcome.layer.is_none() && !self.sandbox.changes.has_descriptor();
        self.end.killed.filter(|_| may_leave).map(|at| at + GONE_WITHIN)
    }

    /// Reports a sandbox that is not gone, or leaves it.
    pub(super) fn look_at_the_end(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if self.dead {
            return;
        }
        if is_due(self.leave_at()) {
            self.outcome.lingers = true;
            self.inside.session = None;
            self.nothing_runs();
        } else if is_due(self.end.report_at()) {
            self.end.is_reported = true;
            tell("The command has ended, and the kernel still frees what its processes held. nexus waits for that.");
        }
    }

    /// Notes that no process inside runs any more: only what is in the pipes is still to come.
    pub(super) fn nothing_runs(&mut self) {
        self.dead = true;
        self.note_what_is_left();
        self.silent_since = Some(Instant::now());
        self.hung_up_until = None;
        self.outcome.names.close();
        self.caller.sandbox_is_dead();
    }
}
