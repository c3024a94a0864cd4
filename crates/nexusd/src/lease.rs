//! Leases: until when a claim holds, and who ends its work when it does not hold any more.
//!
//! A claim counts from the moment at which the request **left**, not from the answer: an answer may be late by any time, and the
//! server counts from before it. The clock is CLOCK_BOOTTIME, which goes on while the machine sleeps; an [`std::time::Instant`] stops then.

use nexus_driver::Driver;
use nexus_driver_namespace::launcher::Launcher;
use nexus_model::RunId;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time before the server's end of a lease at which the daemon counts it as over.
pub const MARGIN: Duration = Duration::from_secs(5);
/// Shortest rest of a lease in which changes may still be committed.
pub const COMMIT_WITHIN: Duration = Duration::from_secs(10);

/// Reads the clock CLOCK_BOOTTIME of this machine.
#[must_use]
pub fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.try_into().unwrap_or_default(), now.tv_nsec.try_into().unwrap_or_default())
}

/// Returns the end of a lease of `ttl_seconds` that a request asked for which left at `sent`.
#[must_use]
pub fn end(sent: Duration, ttl_seconds: u32) -> Duration {
    sent + Duration::from_secs(u64::from(ttl_seconds)).saturating_sub(MARGIN)
}

/// A driver whose launcher ends a sandbox at a given time, whatever became of this process by then.
pub trait LeaseDriver: Driver {
    /// Kills the sandbox of the run at this time of CLOCK_BOOTTIME, and starts none for it after it. A later call moves the time.
    fn keep_until(&self, run: RunId, until: Duration) -> Result<(), String>;

    /// Makes sure that there is a launcher. Returns whether one that had died was replaced.
    fn revive(&self) -> Result<bool, String>;
}

impl LeaseDriver for Launcher {
    fn keep_until(&self, run: RunId, until: Duration) -> Result<(), String> {
        Launcher::keep_until(self, run, until).map_err(|error| error.to_string())
    }

    fn revive(&self) -> Result<bool, String> {
        Launcher::revive(self).map_err(|error| format!("the launcher process cannot be started again: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_the_request_and_not_from_its_answer() {
        let sent = Duration::from_secs(1000);
        assert_eq!(end(sent, 60), Duration::from_secs(1055));
        // An answer that took 20 s leaves 35 s of it.
        let answered = sent + Duration::from_secs(20);
        assert_eq!(end(sent, 60), answered + Duration::from_secs(35));
        assert_eq!(end(sent, 3), sent, "a lease below the margin is over at once");
    }
}
