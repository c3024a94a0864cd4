//! The monotonic clock for decisions of policies.

use nexus_policy::net::MonotonicMs;
use std::time::{Duration, Instant};

/// Clock that counts milliseconds from its start. The builder of a policy with an end shares this clock with the
/// egress.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Creates a clock that begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the present time.
    pub fn now(&self) -> MonotonicMs {
        MonotonicMs(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Returns the time left until `moment`; zero if it has passed.
    pub fn until(&self, moment: MonotonicMs) -> Duration {
        Duration::from_millis(moment.0.saturating_sub(self.now().0))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}
