//! Looks at the limits that the kernel does not hold by itself, and at the covers of protected files.

use super::{Caller, Covers, Look, Pump};
use nexus_model::ExitReason;
use std::io;
use std::time::{Duration, Instant};

/// How often a layer on disk is measured.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often the kernel is asked whether it killed for memory: one small file.
pub(super) const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_millis(10);

impl<C: Caller> Pump<'_, C> {
    pub(super) fn look(&mut self) -> io::Result<()> {
        let began = Instant::now();
        if self.bounds.watch_memory && self.sandbox.process.oom_kills()? > 0 {
            self.outcome.reason = ExitReason::Oom;
            self.kill()?;
        }
        if let Some(over) = &mut self.bounds.over_disk
            && over(Look::On)?
        {
            self.outcome.reason = ExitReason::DiskQuota;
            self.kill()?;
        }
        // A large layer takes long to measure: at most a tenth of the time goes there.
        let every = if self.bounds.over_disk.is_some() { LOOK_EVERY } else { LOOK_AT_MEMORY_EVERY };
        self.look_at = Instant::now() + every.max(began.elapsed() * 10);
        Ok(())
    }

    /// Ends the run, without a grace, when a cover is gone.
    pub(super) fn look_at_covers(&mut self) -> io::Result<()> {
        if let Some(path) = self.bounds.covers.as_mut().and_then(Covers::lost) {
            self.outcome.reason = ExitReason::ProtectionLost;
            self.outcome.uncovered = Some(path);
            self.bounds.covers = None;
            self.kill()?;
        }
        Ok(())
    }

    /// What the kernel did between the last look and the end.
    pub(super) fn last_look(&mut self) -> io::Result<()> {
        if let Some(mut covers) = self.bounds.covers.take() {
            self.outcome.altered = covers.altered();
            if let Some(path) = covers.lost_at_the_end() {
                self.outcome.reason = ExitReason::ProtectionLost;
                self.outcome.uncovered = Some(path);
            }
        }
        if self.bounds.watch_memory && self.sandbox.process.oom_kills()? > 0 {
            self.outcome.reason = ExitReason::Oom;
        }
        if let Some(over) = &mut self.bounds.over_disk
            && over(Look::AtAll)?
        {
            self.outcome.reason = ExitReason::DiskQuota;
        }
        Ok(())
    }
}
