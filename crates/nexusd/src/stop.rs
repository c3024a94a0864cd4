//! Ends waits of threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Set once, and seen by every thread that waits.
#[derive(Debug, Default)]
pub struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_set: bool,
    /// Calls of [`Stop::hurry`].
    calls: u64,
}

impl Stop {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all waits, now and later.
    pub fn set(&self) {
        self.state().is_set = true;
        self.changed.notify_all();
    }

    /// Reports whether it is set.
    pub fn is_set(&self) -> bool {
        self.state().is_set
    }

    /// Ends the waits of [`Stop::wait_for_call`].
    pub fn hurry(&self) {
        self.state().calls += 1;
        self.changed.notify_all();
    }

    /// Waits for that long, or until it is set. Returns whether it is.
    pub fn wait(&self, within: Duration) -> bool {
        self.wait_while(within, |_| true).is_set
    }

    /// Waits for that long, or until it is set or [`Stop::hurry`] was called more than `known` times, which is brought up to date.
    /// Returns whether it is set.
    pub fn wait_for_call(&self, within: Duration, known: &mut u64) -> bool {
        let state = self.wait_while(within, |state| state.calls == *known);
        *known = state.calls;
        state.is_set
    }

    fn wait_while(&self, within: Duration, goes_on: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let deadline = Instant::now() + within;
        let mut state = self.state();
        while !state.is_set && goes_on(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}
