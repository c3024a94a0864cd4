//! Accounts for an open connection: counts while it lives, settles when it is dropped.

use crate::audit::event::{Event, EventKind};
use crate::decide::context::InForce;
use crate::decide::registry::Entry;
use crate::decide::state::Shared;
use crate::upstream::dial::{DialError, Received};
use nexus_policy::net::{Charge, Denial, DenyCode, Host, MonotonicMs, Permit, Policy};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Maximum number of other hosts in the last line of a connection.
const MAX_ASKED: usize = 8;

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Bytes to the network.
    Up,
    /// Bytes to the sandbox.
    Down,
}

/// Account of a connection, held by the task that serves it. Its drop always writes the last line and gives the charge
/// back.
pub(crate) struct ConnectionGuard {
    pub(crate) shared: Arc<Shared>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) id: u64,
    started: MonotonicMs,
    up: AtomicU64,
    down: AtomicU64,
    last: AtomicU64,
    half_closed: AtomicBool,
    /// Address that answered.
    pub(crate) dialed: OnceLock<IpAddr>,
    /// Other hosts that the connection named and that were let through.
    asked: Mutex<Vec<String>>,
    /// Bytes of an upstream proxy's answers that are not counted yet.
    pub(crate) received: Received,
}

impl ConnectionGuard {
    pub(crate) fn new(shared: Arc<Shared>, entry: Arc<Entry>, id: u64) -> Self {
        let started = shared.clock.now();
        Self {
            shared,
            entry,
            id,
            started,
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            last: AtomicU64::new(started.0),
            half_closed: AtomicBool::new(false),
            dialed: OnceLock::new(),
            asked: Mutex::default(),
            received: Received::default(),
        }
    }

    pub(crate) fn permit(&self) -> &Permit {
        &self.entry.permit
    }

    /// Reports whether the connection must name exactly its host: the same server has a denied name too, perhaps only
    /// since the connection began.
    pub(crate) fn must_name(&self) -> bool {
        self.permit().must_name() || !self.entry.learned().behind.is_empty()
    }

    /// Returns the policy in force, for decisions while the connection is open.
    pub(crate) fn policy(&self) -> Arc<InForce> {
        self.shared.registry.policy()
    }

    /// Asks the policy in force together with what is known by now of the addresses of the connection.
    pub(crate) fn ask<T>(&self, ask: impl FnOnce(&Policy) -> T) -> T {
        self.entry.with_learned(&self.policy(), ask)
    }

    /// Decides again whether the connection may go on.
    pub(crate) fn evaluate(&self) -> Result<(), Denial> {
        self.entry.evaluate(&self.policy(), self.shared.clock.now())
    }

    /// Records that the destination was not reached.
    pub(crate) fn failed(&self, error: &DialError) {
        let event = Event::of(EventKind::Fail, self.id, self.permit().attempt());
        self.shared.audit.note(&Event { code: DenyCode::Other, explanation: Some(error.to_string()), ..event });
    }

    /// Notes the host that the connection named and that was let through, for the record.
    pub(crate) fn note_asked(&self, host: Option<&Host>) {
        let Some(host) = host.filter(|host| **host != self.permit().target().host) else { return };
        let (host, mut asked) = (host.to_string(), self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        if asked.len() < MAX_ASKED && !asked.contains(&host) {
            asked.push(host);
        }
    }

    /// Counts bytes before they are passed on; over the budget they are not passed on.
    pub(crate) fn count(&self, flow: Flow, bytes: usize) -> Result<(), Denial> {
        let bytes = bytes as u64;
        let (charge, counter) = match flow {
            Flow::Up => (Charge::Up(bytes), &self.up),
            Flow::Down => (Charge::Down(bytes), &self.down),
        };
        self.shared.charge(charge)?;
        counter.fetch_add(bytes, Ordering::Relaxed);
        self.last.store(self.shared.clock.now().0, Ordering::Relaxed);
        Ok(())
    }

    /// Counts the bytes that an upstream proxy answered. Over the budget the connection is cut.
    pub(crate) fn count_received(&self) -> Result<(), Denial> {
        let counted = self.count(Flow::Down, self.received.take());
        counted.inspect_err(|why| self.entry.cut(why.clone()))
    }

    /// Records that one direction has ended; reports whether the other one had ended before.
    pub(crate) fn half_close(&self) -> bool {
        self.half_closed.swap(true, Ordering::Relaxed)
    }

    /// Marks the connection as half-closed: the client sends nothing more.
    pub(crate) fn client_ended(&self) {
        self.half_closed.store(true, Ordering::Relaxed);
    }

    /// Waits until the connection was silent for too long (`None` if one direction had ended) or the policy's time is
    /// over.
    pub(crate) async fn until_over(&self) -> Option<Denial> {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let (whole, half) = (ms(self.shared.limits.idle), ms(self.shared.limits.half_closed));
        loop {
            let idle = if self.half_closed.load(Ordering::Relaxed) { half.min(whole) } else { whole };
            let now = self.shared.clock.now();
            // The end is that of the policy in force: a later policy may end sooner, or later.
            let expires = self.policy().expires();
            if expires.is_some_and(|end| now >= end) {
                return nexus_policy::net::recheck(&self.policy(), self.permit(), now)
                    .err()
                    .or_else(|| Some(crate::decide::denials::malformed("the time of the network policy is over")));
            }
            let silent = MonotonicMs(self.last.load(Ordering::Relaxed)).plus_ms(idle);
            if now >= silent {
                let whole = !self.half_closed.load(Ordering::Relaxed);
                return whole.then(|| {
                    crate::decide::denials::too_many(format!(
                        "nothing came or went for {} s",
                        self.shared.limits.idle.as_secs()
                    ))
                });
            }
            // The connection may be half-closed meanwhile, so the loop checks at that interval.
            let wake = expires.map_or(silent, |end| end.min(silent)).min(now.plus_ms(half));
            tokio::time::sleep(self.shared.clock.until(wake).max(Duration::from_millis(1))).await;
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        // The question to the proxy may have been broken off. At worst the bytes exceed the budget, and the connection
        // ends in any case.
        match self.count(Flow::Down, self.received.take()) {
            Ok(()) | Err(_) => {}
        }
        let shared = &self.shared;
        shared.registry.leave(self.id);
        shared.give_back();
        let attempt = self.permit().attempt();
        let (up, down) = (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed));
        shared.tally().bytes(attempt, up, down);
        let cut = self.entry.why();
        if let Some(why) = &cut {
            shared.tally().deny(attempt.target.host.to_string(), attempt.target.port.number(), why);
        }
        let kind = if cut.is_some() { EventKind::Cut } else { EventKind::Close };
        let mut event = Event::of(kind, self.id, attempt);
        if let Some(why) = &cut {
            event = event.denied(why);
        }
        let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        let event = Event {
            asked,
            dialed: self.dialed.get().copied(),
            bytes_up: Some(up),
            bytes_down: Some(down),
            duration_ms: Some(shared.clock.now().0.saturating_sub(self.started.0)),
            ..event
        };
        match &cut {
            Some(_) => shared.context().note(&event, &shared.audit),
            None => shared.audit.note(&event),
        }
    }
}
