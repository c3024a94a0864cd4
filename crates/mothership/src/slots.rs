//! Slots of connections: when all are taken, the one that has been silent for longest and has shown no right leaves.
//!
//! Anybody who reaches the address can open connections. A caller who has shown a key keeps the slot; everybody else has one
//! only while there is room, so that silent connections exclude no other client.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// All slots of a listener.
#[derive(Default)]
pub struct Slots {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    next: u64,
    taken: usize,
    /// Connections without a right, by the turn of their arrival or of their last request: the first is the one to leave.
    unknown: BTreeMap<u64, Arc<Notify>>,
}

/// Slot of one connection. It is given up when the value is dropped.
pub struct Slot {
    slots: Arc<Slots>,
    leave: Arc<Notify>,
    /// Turn among the connections without a right; `None` once a right was shown.
    turn: Mutex<Option<u64>>,
    has_spoken: AtomicBool,
}

impl Slots {
    /// Takes a slot. When `most` are taken, the longest silent connection without a right is evicted.
    pub async fn enter(self: &Arc<Self>, most: usize) -> Slot {
        let mut is_asked = false;
        loop {
            if let Some(slot) = self.try_enter(most) {
                return slot;
            }
            // Once: a slot that became free earlier may have left a wake.
            if !is_asked {
                self.evict();
                is_asked = true;
            }
            self.freed.notified().await;
        }
    }

    /// Evicts the longest silent connection without a right.
    pub fn evict(&self) {
        let first = self.state().unknown.pop_first();
        if let Some((_, leave)) = first {
            leave.notify_one();
        }
    }

    fn try_enter(self: &Arc<Self>, most: usize) -> Option<Slot> {
        let leave = Arc::new(Notify::new());
        let mut state = self.state();
        if state.taken >= most {
            return None;
        }
        state.taken += 1;
        let turn = state.queue(&leave);
        drop(state);
        let (turn, has_spoken) = (Mutex::new(Some(turn)), AtomicBool::new(false));
        Some(Slot { slots: Arc::clone(self), leave, turn, has_spoken })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&mut self, leave: &Arc<Notify>) -> u64 {
        let turn = self.next;
        self.next += 1;
        self.unknown.insert(turn, Arc::clone(leave));
        turn
    }
}

impl Slot {
    /// A request came: the connection is the last to leave among those without a right.
    pub fn spoke(&self) {
        self.has_spoken.store(true, Ordering::Relaxed);
        let mut turn = self.turn();
        if let Some(old) = *turn {
            let mut state = self.slots.state();
            // One that was evicted stays so.
            if state.unknown.remove(&old).is_some() {
                *turn = Some(state.queue(&self.leave));
            }
        }
    }

    /// Returns whether a request came.
    pub fn has_spoken(&self) -> bool {
        self.has_spoken.load(Ordering::Relaxed)
    }

    /// The caller has shown a right: the slot is kept.
    pub fn keep(&self) {
        if let Some(turn) = self.turn().take() {
            self.slots.state().unknown.remove(&turn);
        }
    }

    /// Waits until the connection has to leave.
    pub async fn evicted(&self) {
        self.leave.notified().await;
    }

    fn turn(&self) -> MutexGuard<'_, Option<u64>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.keep();
        self.slots.state().taken -= 1;
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    async fn is_told(slot: &Slot) -> bool {
        tokio::time::timeout(Duration::from_millis(20), slot.evicted()).await.is_ok()
    }

    #[tokio::test]
    async fn the_longest_silent_connection_without_a_right_leaves() {
        let slots = Arc::new(Slots::default());
        let known = slots.enter(4).await;
        known.keep();
        let talks = slots.enter(4).await;
        let silent = slots.enter(4).await;
        let later = slots.enter(4).await;
        talks.spoke();
        assert!(talks.has_spoken() && !silent.has_spoken());
        let next = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.enter(4).await }
        });
        assert!(is_told(&silent).await);
        for stays in [&known, &talks, &later] {
            assert!(!is_told(stays).await);
        }
        assert!(!next.is_finished(), "no slot is free yet");
        drop(silent);
        let next = next.await.unwrap();
        slots.evict();
        assert!(is_told(&later).await);
        slots.evict();
        assert!(is_told(&talks).await && !is_told(&next).await);
        talks.spoke();
        slots.evict();
        assert!(is_told(&next).await, "one that was evicted takes no new turn");
        slots.evict();
        assert!(!is_told(&known).await, "the right is kept");
    }

    #[tokio::test]
    async fn a_connection_waits_while_everybody_has_a_right() {
        let slots = Arc::new(Slots::default());
        let known = slots.enter(1).await;
        known.keep();
        assert!(tokio::time::timeout(Duration::from_millis(20), slots.enter(1)).await.is_err());
        drop(known);
        assert!(tokio::time::timeout(Duration::from_secs(5), slots.enter(1)).await.is_ok());
    }
}
