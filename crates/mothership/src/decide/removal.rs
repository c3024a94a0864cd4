//! Decides whether what is old may be removed: not after a clock that is not to be trusted.

use super::drift::{Drift, Reading, drift};

/// Time without any removal after a jump of the clock, in milliseconds of the boot clock: a person sees the wrong clock before
/// something is lost.
const HELD_FOR_MS: i64 = 86_400_000;
/// Time that may lie between the last sign of a territory and the start of a server without suspicion.
const SILENCE_MS: i64 = 86_400_000;

/// Watches the clock by which things are old, from one round of removals to the next.
#[derive(Debug, Clone, Copy)]
pub struct RemovalGuard {
    before: Reading,
    /// Time of the boot clock until which nothing is removed.
    held_until: i64,
}

impl RemovalGuard {
    /// Begins to watch. `last_seen` is the latest time at which a territory spoke to any server: a clock that is far from it is not
    /// trusted at once.
    #[must_use]
    pub fn new(now: Reading, last_seen: Option<i64>) -> Self {
        let is_far = last_seen.is_some_and(|seen| now.wall.abs_diff(seen) > SILENCE_MS.unsigned_abs());
        Self { before: now, held_until: if is_far { now.boot + HELD_FOR_MS } else { now.boot } }
    }

    /// Notes a reading, and reports whether what is old by its wall clock may be removed.
    pub fn allows(&mut self, now: Reading) -> bool {
        if let Drift::Jumped(_) = drift(self.before, now) {
            self.held_until = now.boot + HELD_FOR_MS;
        }
        self.before = now;
        now.boot >= self.held_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const DAY: i64 = 24 * HOUR;

    #[test]
    fn nothing_is_removed_for_a_day_after_a_jump_of_the_clock() {
        let at = |wall: i64, boot: i64| Reading { wall: 1_000 * DAY + wall, boot };
        let mut guard = RemovalGuard::new(at(0, 0), Some(1_000 * DAY));
        assert!(guard.allows(at(0, 0)) && guard.allows(at(HOUR, HOUR)));
        assert!(!guard.allows(at(40 * DAY, HOUR + 1)), "the clock is 40 days ahead");
        assert!(!guard.allows(at(2 * HOUR, 2 * HOUR)), "and back, which is a jump as well");
        assert!(!guard.allows(at(25 * HOUR, 25 * HOUR)));
        assert!(guard.allows(at(26 * HOUR, 26 * HOUR)));
        // Time that passed while no round was made is not a jump.
        assert!(guard.allows(at(50 * DAY, 50 * DAY)));
    }

    #[test]
    fn a_start_with_a_clock_far_from_the_last_sign_of_a_territory_removes_nothing_for_a_day() {
        let now = Reading { wall: 1_000 * DAY, boot: 7 };
        for (last_seen, is_allowed) in
            [(None, true), (Some(1_000 * DAY - HOUR), true), (Some(960 * DAY), false), (Some(1_040 * DAY), false)]
        {
            assert_eq!(RemovalGuard::new(now, last_seen).allows(now), is_allowed, "{last_seen:?}");
        }
        let mut guard = RemovalGuard::new(now, Some(960 * DAY));
        assert!(guard.allows(Reading { wall: 1_001 * DAY, boot: 7 + DAY }));
    }
}
