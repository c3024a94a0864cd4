//! Waits for a sandbox whose processes have exited or were killed, while the kernel still releases their resources.
//!
//! ```text
//!  ended on its own ─1 s──▶ said, and waited for ──┐ killed meanwhile
//!  killed ──────────1 s──────────────────────────▶ each process killed by itself, left to a later command
//! ```
//! The second kill is for a first process that cannot take its SIGKILL (frozen, or asleep in the kernel): the others would
//! run on. Then no process of the sandbox runs any more code of its own.

use crate::live::bounds::Outcome;
use nexus_driver::Sandbox;
use std::io;
use std::time::{Duration, Instant};

/// Time that the kernel has to take a sandbox apart before a person hears of it.
const GONE_WITHIN: Duration = Duration::from_secs(1);

/// The end of a sandbox, as far as this process knows it.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The time at which the main command had ended.
    ended: Option<Instant>,
    /// The time at which everything inside was killed.
    killed: Option<Instant>,
    /// The wait was reported.
    is_reported: bool,
}

/// Reports whether a command that ran has its work in a layer in memory. Its output can come before its start is reported.
pub fn keeps_work(sandbox: &Sandbox, outcome: &Outcome) -> bool {
    let has_run = outcome.spawned.is_some() || outcome.first_output.is_some();
    has_run && (outcome.layer.is_some() || sandbox.changes.has_descriptor())
}

/// The thing to do about a sandbox that is not gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linger {
    /// Tell the attendant that the run waits.
    Report,
    /// Leave the sandbox to a later command.
    Leave,
}

impl End {
    /// Notes that the main command has ended.
    pub(super) fn note_ended(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
    }

    /// Notes that the wait was reported.
    pub(super) fn note_reported(&mut self) {
        self.is_reported = true;
    }

    /// Kills everything inside.
    pub(super) fn kill(&mut self, sandbox: &Sandbox) -> io::Result<()> {
        self.killed.get_or_insert_with(Instant::now);
        sandbox.process.kill()
    }

    /// Returns the time at which a sandbox that is not gone is reported or left.
    pub(super) fn next(&self, sandbox: &Sandbox, outcome: &Outcome) -> Option<Instant> {
        self.report_at().into_iter().chain(self.leave_at(sandbox, outcome)).min()
    }

    /// Returns the action that is due now.
    pub(super) fn due(&self, now: Instant, sandbox: &Sandbox, outcome: &Outcome) -> Option<Linger> {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        match () {
            () if is_due(self.leave_at(sandbox, outcome)) => Some(Linger::Leave),
            () if is_due(self.report_at()) => Some(Linger::Report),
            () => None,
        }
    }

    fn report_at(&self) -> Option<Instant> {
        self.ended.or(self.killed).filter(|_| !self.is_reported).map(|at| at + GONE_WITHIN)
    }

    /// Returns the time at which a killed sandbox is left to a later command. The work in a layer in memory would be gone
    /// with this process.
    fn leave_at(&self, sandbox: &Sandbox, outcome: &Outcome) -> Option<Instant> {
        self.killed.filter(|_| !keeps_work(sandbox, outcome)).map(|at| at + GONE_WITHIN)
    }
}
