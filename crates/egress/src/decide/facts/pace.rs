//! Sets a pace for actions of the egress that a program inside can cause without limit.

use std::sync::{Mutex, PoisonError};

/// Number of turns that are taken at once, and pause in milliseconds between those beyond.
pub(crate) const BURST: u64 = 256;
pub(crate) const EACH_MS: u64 = 10;

/// Time from which on the next turn is free, in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<u64>);

impl Pace {
    /// Takes a turn and returns its wait in milliseconds, at most `longest`: more turns than fit there come too early.
    pub(crate) fn take(&self, now: u64, longest: u64) -> u64 {
        let mut free_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = free_at.saturating_sub(now + BURST * EACH_MS).min(longest);
        *free_at = (*free_at).max(now).saturating_add(EACH_MS).min(now + BURST * EACH_MS + longest);
        wait
    }

    /// Takes a turn that comes within `longest` milliseconds, and returns its wait in milliseconds; `None` if no turn
    /// comes so soon.
    pub(crate) fn take_within(&self, now: u64, longest: u64) -> Option<u64> {
        let mut free_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = free_at.saturating_sub(now + BURST * EACH_MS);
        if wait > longest {
            return None;
        }
        *free_at = (*free_at).max(now).saturating_add(EACH_MS);
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: u64 = 1000;

    #[test]
    fn refusals_beyond_the_burst_are_paced_and_a_pause_is_bounded() {
        let pace = Pace::default();
        for _ in 0..BURST {
            assert_eq!(pace.take(1000, LONGEST), 0);
        }
        let waits: Vec<u64> = (0..300).map(|_| pace.take(1000, LONGEST)).collect();
        assert_eq!(waits[..3], [0, EACH_MS, 2 * EACH_MS]);
        assert_eq!(waits.iter().max(), Some(&LONGEST));
        assert_eq!(pace.take(1000 + BURST * EACH_MS + LONGEST, LONGEST), 0, "afterwards it is at once again");
    }

    #[test]
    fn turns_beyond_those_that_fit_are_refused_and_take_no_place() {
        let pace = Pace::default();
        let taken: Vec<u64> = std::iter::from_fn(|| pace.take_within(1000, LONGEST)).take(10_000).collect();
        assert_eq!(taken.len() as u64, BURST + LONGEST / EACH_MS + 1);
        assert_eq!(taken.last(), Some(&LONGEST));
        assert_eq!(pace.take_within(1000 + EACH_MS, LONGEST), Some(LONGEST), "one turn came free");
        assert_eq!(pace.take_within(1000 + EACH_MS, LONGEST), None);
    }
}
