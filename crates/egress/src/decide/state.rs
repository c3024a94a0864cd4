//! Holds the state that all connections of one sandbox share: policy, record, budget, facts and counts.

use crate::audit::event::{Event, EventKind};
use crate::audit::record::Audit;
use crate::audit::summary::{Summary, Tally};
use crate::clock::Clock;
use crate::decide::context::DecisionContext;
use crate::decide::facts::denied_addresses::Followed;
use crate::decide::facts::look_up_pool::LookUpPool;
use crate::decide::facts::nat64::Nat64;
use crate::decide::facts::pace::Pace;
use crate::decide::facts::synthetic::Synthetic;
use crate::decide::facts::unanswered::Silence;
use crate::decide::registry::Registry;
use crate::limits::Limits;
use crate::memory::bounds::{Heads, set_buffers};
use crate::memory::buffers::Buffers;
use crate::seams::{Approver, Destinations, OwnAddresses, Programs, Resolver};
use crate::upstream::dial::Dialer;
use nexus_policy::net::{Attempt, Charge, Denial, Policy, Usage};
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait after one refusal, in milliseconds.
const LONGEST_MS: u64 = 1000;

/// State that all connections of one sandbox share.
pub(crate) struct Shared {
    pub(crate) registry: Registry,
    pub(crate) audit: Audit,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) buffers: Buffers,
    pub(crate) heads: Arc<Heads>,
    pub(crate) pace: Pace,
    pub(crate) programs: Arc<dyn Programs>,
    /// Lock that a connection holds while its program is looked up.
    pub(crate) looking_up: tokio::sync::Mutex<()>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) destinations: Arc<dyn Destinations>,
    pub(crate) synthetic: Mutex<Synthetic>,
    pub(crate) clients: AtomicUsize,
    /// True if a task wakes the runtime regularly.
    pub(crate) beating: AtomicBool,
    pub(crate) own: Arc<dyn OwnAddresses>,
    pub(crate) followed: Followed,
    pub(crate) silence: Silence,
    pub(crate) nat64: Nat64,
    pub(crate) look_ups: LookUpPool,
    /// Number of times that addresses or routes of this host changed.
    pub(crate) host_changes: AtomicU64,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) dialer: Dialer,
    used: Mutex<Usage>,
    tally: Mutex<Tally>,
    ids: AtomicU64,
}

/// Parts that an egress gives to [`Shared`].
pub(crate) struct Parts {
    pub(crate) policy: Arc<Policy>,
    pub(crate) audit: Audit,
    pub(crate) clock: Clock,
    pub(crate) limits: Limits,
    pub(crate) programs: Arc<dyn Programs>,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) destinations: Arc<dyn Destinations>,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) own: Arc<dyn OwnAddresses>,
    pub(crate) dialer: Dialer,
    pub(crate) heads: Arc<Heads>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            registry: Registry::new(parts.policy),
            audit: parts.audit,
            clock: parts.clock,
            heads: parts.heads,
            look_ups: LookUpPool::new(parts.limits.look_ups),
            pace: Pace::default(),
            limits: parts.limits,
            buffers: Buffers::default(),
            programs: parts.programs,
            looking_up: tokio::sync::Mutex::new(()),
            approver: parts.approver,
            destinations: parts.destinations,
            synthetic: Mutex::new(Synthetic::default()),
            clients: AtomicUsize::new(0),
            beating: AtomicBool::new(false),
            own: parts.own,
            followed: Followed::default(),
            silence: Silence::default(),
            nat64: Nat64::default(),
            host_changes: AtomicU64::new(0),
            resolver: parts.resolver,
            dialer: parts.dialer,
            used: Mutex::new(Usage::default()),
            tally: Mutex::new(Tally::default()),
            ids: AtomicU64::new(1),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the id that the next attempt will have; it changes with each attempt.
    pub(crate) fn latest_id(&self) -> u64 {
        self.ids.load(Ordering::Relaxed)
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn summary(&self) -> Summary {
        let open = self.registry.open();
        self.tally().reported(self.audit.lost(), open)
    }

    pub(crate) fn has_upstream(&self) -> bool {
        self.dialer.upstream.is_some()
    }

    /// Takes from the budget, or refuses and leaves it as it was.
    pub(crate) fn charge(&self, charge: Charge) -> Result<(), Denial> {
        let policy = self.registry.policy();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        *used = policy.budget().charge(*used, charge)?;
        Ok(())
    }

    /// Gives back the charge of a connection that ended.
    pub(crate) fn give_back(&self) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.open_connections = used.open_connections.saturating_sub(1);
    }

    /// Returns the context for a decision by more than the policy in force now.
    pub(crate) fn context(&self) -> DecisionContext {
        DecisionContext::of(self.registry.policy(), self.clock.now())
    }

    /// Records a denial. A failing audit changes nothing, since the attempt is refused in any case.
    pub(crate) fn denied(&self, id: u64, attempt: &Attempt, denial: &Denial) {
        self.denied_on(&self.context(), Event::of(EventKind::Deny, id, attempt), attempt, denial);
    }

    pub(crate) fn denied_on(&self, context: &DecisionContext, event: Event, attempt: &Attempt, denial: &Denial) {
        self.tally().deny(attempt.target.host.to_string(), attempt.target.port.number(), denial);
        context.note(&event.denied(denial), &self.audit);
    }

    /// Records a request that names no readable destination.
    pub(crate) fn unreadable(&self, way: nexus_policy::net::Ingress, denial: &Denial) {
        self.tally().deny(String::new(), 0, denial);
        let event = Event::new(EventKind::Deny, self.next_id()).denied(denial);
        self.context().note(&Event { way: Some(way), ..event }, &self.audit);
    }

    /// Bounds the kernel's memory for `socket` where many connections are open.
    pub(crate) fn bound_buffers(&self, socket: &impl AsFd) {
        set_buffers(&self.limits, self.clients.load(Ordering::Relaxed), socket);
    }

    /// Slows down a sandbox whose attempts are refused far more often than a mistaken program's.
    pub(crate) async fn pause_after_refusal(&self) {
        let wait = self.pace.take(self.clock.now().0, LONGEST_MS);
        if wait > 0 {
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
    }
}
