//! Places for look-ups, and the look-ups that are under way.
//!
//! ```text
//!  a name that a rule writes out ─▶ any place ────────────────────┐
//!  any other name ─▶ its turn (pace) ─▶ a place that is not kept ─┴─▶ one look-up for all that wait for that name
//! ```
//!
//! A look-up is a task of its own: an attempt that leaves takes nothing from those that go on waiting. The task ends
//! with the last of them.
//!
//! The program inside chooses the names below a wildcard, and their name servers. So these names wait for each other,
//! and delay neither the names of the user's rules nor the host's name servers.

use crate::decide::facts::pace::Pace;
use crate::seams::{ResolveError, Resolved};
use nexus_policy::net::{Name, NameQuery};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::AbortHandle;

/// Divisor of the number of places: the quotient is kept for names that a rule writes out.
const KEPT_PART: usize = 4;

/// Result of one look-up.
pub(crate) type Found = Result<Resolved, ResolveError>;
/// Name, whether a rule writes the name out, and time limit. A name that a rule writes out does not wait for a place or a
/// turn of the others.
type Key = (Name, bool, Duration);

/// Places for look-ups, and the look-ups that run.
#[derive(Debug)]
pub(crate) struct LookUpPool {
    common: Semaphore,
    /// Places that only names of rules take.
    kept: Semaphore,
    /// Turns of the other names.
    pub(crate) pace: Pace,
    running: Mutex<Running>,
}

/// Look-ups that attempts wait for. The attempts alone keep them.
type Running = HashMap<Key, Weak<LookUp>>;

/// Look-up that runs as a task of its own. Dropping the value ends the task.
#[derive(Debug)]
struct LookUp {
    /// Result; `None` until it is there.
    found: watch::Receiver<Option<Found>>,
    task: AbortHandle,
}

impl LookUp {
    /// Begins the look-up.
    fn begin(look_up: impl Future<Output = Found> + Send + 'static) -> Self {
        let (send, found) = watch::channel(None);
        let task = tokio::spawn(async move { send.send_replace(Some(look_up.await)) });
        Self { found, task: task.abort_handle() }
    }

    /// Reports whether the look-up has ended.
    fn has_ended(&self) -> bool {
        self.found.borrow().is_some() || self.task.is_finished()
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        self.task.abort();
    }
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

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the look-up of the query's name with this time limit that runs, or begins `look_up`.
    pub(crate) fn join<F>(&self, query: &NameQuery, limit: Duration, look_up: impl FnOnce() -> F) -> Joined<'_>
    where
        F: Future<Output = Found> + Send + 'static,
    {
        let key = (query.name().clone(), query.is_exact(), limit);
        let mut running = self.running();
        let joined = running.get(&key).and_then(Weak::upgrade).filter(|joined| !joined.has_ended());
        let look_up = joined.unwrap_or_else(|| {
            let new = Arc::new(LookUp::begin(look_up()));
            running.insert(key.clone(), Arc::downgrade(&new));
            new
        });
        let found = look_up.found.clone();
        Joined { pool: self, key, found, look_up: Some(look_up) }
    }
}

/// Part in a shared look-up. The last part ends the look-up when it is dropped.
pub(crate) struct Joined<'a> {
    pool: &'a LookUpPool,
    key: Key,
    found: watch::Receiver<Option<Found>>,
    look_up: Option<Arc<LookUp>>,
}

impl Joined<'_> {
    /// Waits for the end of the look-up. `None` if its task ended without a result.
    pub(crate) async fn found(mut self) -> Option<Found> {
        self.found.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        // The count of the parts changes under the lock alone, so that exactly one part is the last.
        let mut running = self.pool.running();
        drop(self.look_up.take());
        if running.get(&self.key).is_some_and(|look_up| look_up.strong_count() == 0) {
            running.remove(&self.key);
        }
    }
}
