//! The monotonic clock that policies are decided by.

use nexus_policy::net::Moment;
use std::time::{Duration, Instant};

/// Milliseconds since a start. Whoever builds a policy with an end shares this clock with the egress.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The present.
    pub fn now(&self) -> Moment {
        Moment(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// How long it is until `moment`; nothing if it is over.
    pub fn until(&self, moment: Moment) -> Duration {
        Duration::from_millis(moment.0.saturating_sub(self.now().0))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}
