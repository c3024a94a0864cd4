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
        Self { is_of_machine: true, wall: Arc::new(wall), boot: Arc::new(boot) }
    }

    /// Returns clocks that tests move.
    #[must_use]
    pub fn new(wall: Arc<dyn Fn() -> i64 + Send + Sync>, boot: Arc<dyn Fn() -> i64 + Send + Sync>) -> Self {
        Self { is_of_machine: false, wall, boot }
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
}
