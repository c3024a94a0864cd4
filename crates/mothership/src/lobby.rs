//! Polls that wait for a directive. A poll enters before it looks for work, so that no directive arrives unseen in between.

use crate::decide::fits;
use crate::store::types::{Lane, TerritoryFacts};
use nexus_model::ids::AccountId;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// All waiting polls, the oldest first.
#[derive(Default)]
pub struct Lobby {
    waiting: Mutex<Vec<Arc<Waiting>>>,
}

struct Waiting {
    account: AccountId,
    facts: Mutex<Option<TerritoryFacts>>,
    wake: Notify,
}

/// Place of one poll. It is given up when the value is dropped.
pub struct Seat<'a> {
    lobby: &'a Lobby,
    waiting: Arc<Waiting>,
}

impl Lobby {
    /// Enters a poll.
    pub fn enter(&self, account: AccountId) -> Seat<'_> {
        let waiting = Arc::new(Waiting { account, facts: Mutex::new(None), wake: Notify::new() });
        self.all().push(Arc::clone(&waiting));
        Seat { lobby: self, waiting }
    }

    /// Wakes the oldest poll that fits a ready directive; `false` when there is none. The others look again by their own timers.
    pub fn wake(&self, lane: &Lane) -> bool {
        let waiting = self.all();
        let first = waiting.iter().find(|waiting| waiting.suits(lane));
        first.inspect(|first| first.wake.notify_one()).is_some()
    }

    /// Wakes all polls; `false` when there is none.
    pub fn wake_all(&self) -> bool {
        let waiting = self.all();
        waiting.iter().for_each(|waiting| waiting.wake.notify_one());
        !waiting.is_empty()
    }

    fn all(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn suits(&self, lane: &Lane) -> bool {
        let facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        self.account == lane.account
            && facts.as_ref().is_none_or(|facts| {
                facts.active && fits(&lane.class, facts) && lane.pin.is_none_or(|pin| pin == facts.id)
            })
    }
}

impl Seat<'_> {
    /// Records the facts that decide which directives wake this poll.
    pub fn set_facts(&self, facts: TerritoryFacts) {
        *self.waiting.facts.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts);
    }

    /// Waits until a directive that fits is ready.
    pub async fn woken(&self) {
        self.waiting.wake.notified().await;
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.lobby.all().retain(|waiting| !Arc::ptr_eq(waiting, &self.waiting));
    }
}
