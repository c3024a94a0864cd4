//! Places for look-ups, and the look-ups that are under way.
//!
//! ```text
//!  a name that a rule writes out ─▶ any place ────────────────────┐
//!  any other name ─▶ its turn (pace) ─▶ a place that is not kept ─┴─▶ one look-up for all that wait for that name
//! ```
//!
//! The program inside chooses the names below a wildcard, and their name servers. So these names wait for each other,
//! and delay neither the names of the user's rules nor the host's name servers.

use crate::pace::Pace;
use crate::resolve::{ResolveError, Resolved};
use nexus_policy::net::Name;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// Divisor of the number of places: the quotient is kept for names that a rule writes out.
const KEPT_PART: usize = 4;

/// Result of one look-up.
pub(crate) type Found = Result<Resolved, ResolveError>;
type Key = (Name, Duration);

/// Places for look-ups, and the look-ups that run.
#[derive(Debug)]
pub(crate) struct LookUpPool {
    common: Semaphore,
    /// Places that only names of rules take.
    kept: Semaphore,
    /// Turns of the other names.
    pub(crate) pace: Pace,
    running: Mutex<HashMap<Key, Arc<OnceCell<Found>>>>,
}

impl LookUpPool {
    /// Creates a pool with so many places.
    pub(crate) fn new(count: usize) -> Self {
        let kept = (count / KEPT_PART).max(1);
        let common = count.saturating_sub(kept).max(1);
        let (common, kept) = (Semaphore::new(common), Semaphore::new(kept));
        Self { common, kept, pace: Pace::default(), running: Mutex::default() }
    }

    /// Waits for a place. `None` does not happen: the semaphores are never closed.
    pub(crate) async fn take(&self, is_exact: bool) -> Option<SemaphorePermit<'_>> {
        if !is_exact {
            return self.common.acquire().await.ok();
        }
        tokio::select! {
            biased;
            place = self.common.acquire() => place.ok(),
            place = self.kept.acquire() => place.ok(),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Key, Arc<OnceCell<Found>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the look-up of `name` with this time limit, or begins it.
    pub(crate) fn join(&self, name: &Name, limit: Duration) -> Joined<'_> {
        let key = (name.clone(), limit);
        let cell = Arc::clone(self.running().entry(key.clone()).or_default());
        Joined { pool: self, key, cell }
    }
}

/// Part in a shared look-up.
pub(crate) struct Joined<'a> {
    pool: &'a LookUpPool,
    key: Key,
    cell: Arc<OnceCell<Found>>,
}

impl Joined<'_> {
    /// Waits for the end of the look-up. The first waiter carries it out by `look_up`; if it leaves, the next one does.
    pub(crate) async fn found<F: Future<Output = Found>>(self, look_up: impl FnOnce() -> F) -> Found {
        let found = self.cell.get_or_init(look_up).await.clone();
        // Later attempts ask again.
        let mut running = self.pool.running();
        if running.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell)) {
            running.remove(&self.key);
        }
        drop(running);
        found
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        let mut running = self.pool.running();
        // This is the last part: the map holds the other reference.
        if Arc::strong_count(&self.cell) <= 2
            && running.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell))
        {
            running.remove(&self.key);
        }
    }
}
