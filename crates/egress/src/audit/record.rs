//! Records the egress: one line of JSON per attempt, and another when its connection ends.
//!
//! A decision has the hash of the policy that made it and all its inputs; the policy itself stands before its first
//! decision ([`context`](crate::decide::context)). So a reader can repeat each decision (`nexus_policy::net::Replay`).
//!
//! The first line is written before anything is dialled. If it cannot be written the attempt is denied: a connection
//! that is missing in the record must not exist. Lines hold hosts and ports, never paths, queries, headers or user
//! information, which may carry secrets.

use crate::audit::event::{AuditError, Event};
use crate::audit::repeats::Repeats;
use crate::seams::Sink;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sink with a count of the events that it could not record.
pub(crate) struct Audit {
    sink: Arc<dyn Sink>,
    lost: AtomicU64,
    repeats: Mutex<Repeats>,
    /// Allowed look-ups: refusals take no places from them.
    look_ups: Mutex<Repeats>,
}

impl Audit {
    pub(crate) fn new(sink: Arc<dyn Sink>) -> Self {
        Self { sink, lost: AtomicU64::new(0), repeats: Mutex::default(), look_ups: Mutex::default() }
    }

    /// Records an event whose action must not happen unrecorded. Repeated look-ups share lines.
    pub(crate) fn must(&self, event: &Event) -> Result<(), AuditError> {
        if !event.is_look_up() {
            return self.put(std::slice::from_ref(event));
        }
        let lines = locked(&self.look_ups).take(event);
        self.put(&lines).inspect_err(|_| locked(&self.look_ups).forget(event))
    }

    /// Records an event that has already happened or is a refusal: a failure changes nothing, but is counted and
    /// reported at the end. Repeated refusals share lines.
    pub(crate) fn note(&self, event: &Event) {
        let lines = locked(&self.repeats).take(event);
        // The count of lost lines has the failure.
        self.put(&lines).ok();
    }

    /// Writes the lines that wait for repetitions.
    pub(crate) fn flush(&self) {
        for repeats in [&self.repeats, &self.look_ups] {
            let lines = locked(repeats).drain();
            self.put(&lines).ok();
        }
    }

    /// Writes lines and counts those that the sink does not take; returns the last failure.
    fn put(&self, lines: &[Event]) -> Result<(), AuditError> {
        let mut put = Ok(());
        for line in lines {
            if let Err(error) = self.sink.record(line) {
                self.lost.fetch_add(line.repeated.unwrap_or(1), Ordering::Relaxed);
                put = Err(error);
            }
        }
        put
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn locked(repeats: &Mutex<Repeats>) -> MutexGuard<'_, Repeats> {
    repeats.lock().unwrap_or_else(PoisonError::into_inner)
}
