//! Decides for how long a server calls its store full.

use std::sync::atomic::{AtomicI64, Ordering};

/// Time after a refused write for which the store counts as full, in milliseconds: longer than the longest pause of a daemon between two
/// tries, so that a store that stays full is called so all the time.
const FULL_FOR_MS: i64 = 90_000;

/// Remembers when a write was last refused because there was no room.
#[derive(Debug)]
pub struct Fullness(AtomicI64);

impl Default for Fullness {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }
}

impl Fullness {
    /// Notes a refused write. `now` is a time of the boot clock, in milliseconds.
    pub fn note(&self, now: i64) {
        self.0.fetch_max(now, Ordering::SeqCst);
    }

    /// Reports whether a write was refused lately.
    pub fn is_full(&self, now: i64) -> bool {
        now.saturating_sub(self.0.load(Ordering::SeqCst)) < FULL_FOR_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_full_for_a_while_after_each_refused_write() {
        let fullness = Fullness::default();
        assert!(!fullness.is_full(0) && !fullness.is_full(i64::MAX));
        fullness.note(1_000);
        assert!(fullness.is_full(1_000) && fullness.is_full(1_000 + FULL_FOR_MS - 1));
        assert!(!fullness.is_full(1_000 + FULL_FOR_MS));
        fullness.note(50_000);
        assert!(fullness.is_full(1_000 + FULL_FOR_MS));
    }
}
