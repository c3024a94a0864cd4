//! The point of time at which the search for advice ends.

use std::time::{Duration, Instant};

/// Time for all advice about one run. Less than the second that a run may take longer than its limits.
const MAX_TIME: Duration = Duration::from_millis(500);

/// The search for advice takes longer the more a command printed and the more files an earlier run made. It ends at this time, so that the
/// run ends: advice that is not found by then is left out.
#[derive(Debug, Clone, Copy)]
pub struct Until(Instant);

impl Until {
    /// Returns the end of a search that begins now.
    pub fn start() -> Self {
        Self(Instant::now() + MAX_TIME)
    }

    /// Reports whether the time is over.
    pub fn is_over(self) -> bool {
        Instant::now() >= self.0
    }

    #[cfg(test)]
    pub fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }
}
