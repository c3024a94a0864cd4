//! The clocks that a server reads.

use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Clocks of a server, in milliseconds.
#[derive(Clone)]
pub struct Clock {
    is_of_machine: bool,
    wall: Arc<dyn Fn() -> i64 + Send + Sync>,
    boot: Arc<dyn Fn() -> i64 + Send + Sync>,
    /// Difference of the two when the clocks were made.
    offset: i64,
}

impl Clock {
    /// Returns the clocks of this machine.
    #[must_use]
    pub fn system() -> Self {
        let wall = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64);
        let boot = || {
            let time = clock_gettime(ClockId::Boottime);
            time.tv_sec * 1000 + time.tv_nsec / 1_000_000
        };
        Self { is_of_machine: true, ..Self::new(Arc::new(wall), Arc::new(boot)) }
    }

    /// Returns clocks that tests move.
    #[must_use]
    pub fn new(wall: Arc<dyn Fn() -> i64 + Send + Sync>, boot: Arc<dyn Fn() -> i64 + Send + Sync>) -> Self {
        let offset = wall() - boot();
        Self { is_of_machine: false, wall, boot, offset }
    }

    /// Returns whether these are the clocks of this machine, which may differ from that of a database.
    #[must_use]
    pub fn is_of_machine(&self) -> bool {
        self.is_of_machine
    }

    /// Time since 1970 in UTC, by which the store dates everything.
    #[must_use]
    pub fn wall(&self) -> i64 {
        (self.wall)()
    }

    /// Time since the machine started, suspension included.
    #[must_use]
    pub fn boot(&self) -> i64 {
        (self.boot)()
    }

    /// Time since 1970 as the wall clock would have it if no user had set it since these clocks were made. What lasts for minutes
    /// is measured by it: a clock that is set must neither end the life of a token nor prolong it.
    #[must_use]
    pub fn steady(&self) -> i64 {
        self.boot() + self.offset
    }
}
