//! Limits per minute, counted by this replica alone.

use std::collections::HashMap;
use std::hash::Hash;

/// Number of keys above which old windows are removed.
const SWEEP_ABOVE: usize = 10_000;
const MINUTE_MS: i64 = 60_000;

/// Counts events of many keys in windows of a minute.
#[derive(Debug)]
pub struct Windows<K> {
    limit: u32,
    counts: HashMap<K, (i64, u32)>,
}

impl<K: Hash + Eq> Windows<K> {
    /// Returns counters that allow `limit` events a minute for each key.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit, counts: HashMap::new() }
    }

    /// Counts one event. Above the limit it returns the seconds until the next window.
    pub fn count(&mut self, key: K, now: i64) -> Result<(), u32> {
        if self.counts.len() > SWEEP_ABOVE {
            self.counts.retain(|_, (start, _)| now - *start < MINUTE_MS && now >= *start);
        }
        let window = self.counts.entry(key).or_insert((now, 0));
        if now - window.0 >= MINUTE_MS || now < window.0 {
            *window = (now, 0);
        }
        window.1 = window.1.saturating_add(1);
        if window.1 <= self.limit { Ok(()) } else { Err(((window.0 + MINUTE_MS - now) / 1000 + 1).clamp(1, 60) as u32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_limited_and_the_next_minute_is_free() {
        let mut windows = Windows::new(2);
        assert_eq!((windows.count("a", 0), windows.count("a", 1), windows.count("b", 1)), (Ok(()), Ok(()), Ok(())));
        assert_eq!(windows.count("a", 30_000), Err(31));
        assert_eq!(windows.count("a", 60_000), Ok(()));
        assert_eq!(windows.count("a", -5), Ok(()), "the clock went back");
    }
}
