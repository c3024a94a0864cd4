//! Ends waits of threads.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Set once, and seen by every thread that waits.
#[derive(Debug, Default)]
pub struct Stop {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Ends all waits, now and later.
    pub fn set(&self) {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Reports whether it is set.
    pub fn is_set(&self) -> bool {
        *self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for that long, or until it is set. Returns whether it is.
    pub fn wait(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*set {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            set = self.changed.wait_timeout(set, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
