//! A jump of the wall clock, and the rows that have the new time already.

use std::ops::Range;

/// A jump of the wall clock that the rows do not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// Milliseconds by which it jumped.
    pub by: i64,
    /// Begin of the time, by the new clock, in which rows began after the jump.
    pub since: i64,
    /// End of that time, which no row reaches before the rows are moved.
    pub until: i64,
}

impl Jump {
    /// Time that a write may wait for the store.
    const WRITE_MS: i64 = 60_000;

    /// Describes a jump that the reading `wall` shows, so long after the reading before it.
    #[must_use]
    pub fn found(by: i64, wall: i64, after_ms: i64) -> Self {
        Self { by, since: wall.saturating_sub(after_ms), until: wall.saturating_add(Self::WRITE_MS) }
    }

    /// Longest time from the renewal of a lease to its end, and more.
    const LEASE_MS: i64 = 600_000;

    /// Returns the times, by the new clock, of a lease that was renewed after the jump. After a small jump one of before may have them as
    /// well, so that there are none: such a lease is moved a second time, and not far.
    #[must_use]
    pub fn renewed(self) -> Range<i64> {
        let until = self.until.saturating_add(Self::LEASE_MS);
        if self.by.saturating_abs() > 2 * (until - self.since) { self.since..until } else { 0..0 }
    }

    /// Reports whether the clock had jumped before something that began at `at`.
    #[must_use]
    pub fn is_before(self, at: i64) -> bool {
        (self.since..=self.until).contains(&at)
    }
}
