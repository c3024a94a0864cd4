//! Bound on the event streams of one API key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Id of an API key.
type KeyId = [u8; 16];

/// Open event streams of each API key.
#[derive(Debug, Default)]
pub struct StreamCounts(Mutex<HashMap<KeyId, u32>>);

/// Place of one stream among those of its key. It is given up when the value is dropped.
#[derive(Debug)]
pub struct StreamPlace {
    counts: Arc<StreamCounts>,
    key: KeyId,
}

impl StreamCounts {
    /// Takes a place; `None` when the key has `most` already.
    pub fn take(self: &Arc<Self>, key: KeyId, most: u32) -> Option<StreamPlace> {
        let mut counts = self.counts();
        let count = counts.get(&key).copied().unwrap_or_default();
        if count >= most {
            return None;
        }
        counts.insert(key, count + 1);
        Some(StreamPlace { counts: Arc::clone(self), key })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<KeyId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut counts = self.counts.counts();
        match counts.get(&self.key).copied().unwrap_or_default() {
            0 | 1 => drop(counts.remove(&self.key)),
            count => drop(counts.insert(self.key, count - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_streams_and_no_other_key_fewer() {
        let counts = Arc::new(StreamCounts::default());
        let (one, two) = ([1; 16], [2; 16]);
        let first = counts.take(one, 2).unwrap();
        let second = counts.take(one, 2).unwrap();
        assert!(counts.take(one, 2).is_none());
        let other = counts.take(two, 2);
        assert!(other.is_some());
        drop(first);
        let third = counts.take(one, 2).unwrap();
        assert!(counts.take(one, 2).is_none());
        drop((second, third, other));
        assert!(counts.counts().is_empty(), "nothing of a key without streams is kept");
    }
}
