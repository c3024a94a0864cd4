//! Leads an attempt to an open connection, in the same steps for every way in.
//!
//! ```text
//!  attempt ─▶ name ─▶ budget ─▶ audit ─▶ look-up ─▶ addresses ─▶ audit ─▶ enter ─▶ dial ─▶ Opened (Ticket + stream)
//!              │ ▲       │        │         │           │          │        │       │
//!              │ └ ask   └────────┴─────────┴───────────┴──────────┴────────┘       └── Refusal::Unreachable
//!              └────────────────────────────▶ Refusal::Denied
//! ```
//!
//! The order matters: nothing is resolved before the name was decided, counted and, where the program inside chose it,
//! recorded; nothing is dialled before it is in the audit, and a connection is known to reloads before its first packet
//! leaves.

use crate::approve::{Answer, Approver};
use crate::audit::event::{Event, EventKind};
use crate::audit::record::Audit;
use crate::audit::summary::{Summary, Tally};
use crate::clock::Clock;
use crate::config::Limits;
use crate::decide::behind::Followed;
use crate::decide::denials;
use crate::decide::gone::{self, Waiting};
use crate::decide::grounds::Grounds;
use crate::decide::look_up_pool::LookUpPool;
use crate::decide::look_ups::{Silence, unknown_here};
use crate::decide::nat64::Nat64;
use crate::decide::own::{OwnAddresses, own_among};
use crate::decide::pace::Pace;
use crate::decide::programs::{Caller, Programs};
use crate::decide::registry::{Entry, Learned, Registry};
use crate::decide::synthetic::Synthetic;
use crate::decide::ticket::Ticket;
use crate::ingress::transparent::Destinations;
use crate::memory::bounds::Heads;
use crate::memory::buffers::Buffers;
use crate::upstream::dial::{DialError, Dialed, Dialer};
use crate::upstream::resolve::{ResolveError, Resolver};
use nexus_policy::net::{
    AnyRule, Attempt, Cause, Charge, Check, Denial, DenyCode, Hello, Host, Next, Permit, Policy, Route, Spent,
    check_addrs, check_name, check_sni,
};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;

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
    spent: Mutex<Spent>,
    tally: Mutex<Tally>,
    ids: AtomicU64,
}

/// Reason why there is no connection.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The policy, a budget or the audit refused the attempt.
    Denied(Denial),
    /// The attempt was allowed, and no server answered.
    Unreachable(DialError),
}

/// Allowed connection that was made.
pub(crate) struct Opened {
    pub(crate) ticket: Ticket,
    pub(crate) dialed: Dialed,
}

/// Protocol that is expected on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    /// Any protocol of the client.
    Unknown,
    /// HTTP without TLS.
    PlainHttp,
}

/// Charge for a connection that is not open yet; given back when it is dropped.
pub(crate) struct Charged(Option<Arc<Shared>>);

impl Charged {
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<Self, Denial> {
        shared.charge(Charge::Connection)?;
        Ok(Self(Some(Arc::clone(shared))))
    }

    /// Leaves the charge to a ticket, which gives it back from now on.
    fn pass_on(mut self) {
        self.0 = None;
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.give_back();
        }
    }
}

/// Decision for a connection, with its inputs for the record.
struct Decided {
    permit: Permit,
    /// Charge of a look-up, if one was paid for.
    charged: Option<Charged>,
    ttl_s: Option<u32>,
    grounds: Grounds,
}

/// Permit with the charge of its look-up and the time to live of the answer in seconds.
pub(crate) type Permitted = (Permit, Option<Charged>, Option<u32>);

/// Denial with its inputs for the record.
type Refused = (Denial, Grounds);

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
            spent: Mutex::new(Spent::default()),
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
        self.tally().told(self.audit.lost(), open)
    }

    pub(crate) fn has_upstream(&self) -> bool {
        self.dialer.upstream.is_some()
    }

    /// Takes from the budget, or refuses and leaves it as it was.
    pub(crate) fn charge(&self, charge: Charge) -> Result<(), Denial> {
        let policy = self.registry.policy();
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        *spent = policy.budget().charge(*spent, charge)?;
        Ok(())
    }

    /// Gives back the charge of a connection that ended.
    pub(crate) fn give_back(&self) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.open_connections = spent.open_connections.saturating_sub(1);
    }

    /// Returns the context for a decision by more than the policy in force now.
    pub(crate) fn grounds(&self) -> Grounds {
        Grounds::of(self.registry.policy(), self.clock.now())
    }

    /// Records a denial. A failing audit changes nothing, since the attempt is refused in any case.
    pub(crate) fn denied(&self, id: u64, attempt: &Attempt, denial: &Denial) {
        self.denied_on(&self.grounds(), Event::of(EventKind::Deny, id, attempt), attempt, denial);
    }

    fn denied_on(&self, grounds: &Grounds, event: Event, attempt: &Attempt, denial: &Denial) {
        self.tally().deny(attempt.target.host.to_string(), attempt.target.port.number(), denial);
        grounds.note(&event.denied(denial), &self.audit);
    }

    /// Records a request that names no readable destination.
    pub(crate) fn unreadable(&self, way: nexus_policy::net::Way, denial: &Denial) {
        self.tally().deny(String::new(), 0, denial);
        let event = Event::new(EventKind::Deny, self.next_id()).denied(denial);
        self.grounds().note(&Event { way: Some(way), ..event }, &self.audit);
    }

    /// Leads an attempt to a connection, as long as the client waits for it.
    pub(crate) async fn open(
        self: &Arc<Self>,
        attempt: Attempt,
        caller: &Caller,
        waiting: Waiting<'_>,
        speech: Speech,
    ) -> Result<Opened, Refusal> {
        let way = attempt.way;
        tokio::select! {
            biased;
            opened = self.open_for(attempt, caller, waiting.client, speech) => opened,
            () = waiting.until_gone(way) => Err(Refusal::Denied(denials::malformed("the client closed its connection"))),
        }
    }

    async fn open_for(
        self: &Arc<Self>,
        attempt: Attempt,
        caller: &Caller,
        client: &TcpStream,
        speech: Speech,
    ) -> Result<Opened, Refusal> {
        let attempt = caller.complete(self, attempt).await;
        let id = self.next_id();
        match self.permitted(&attempt, client, speech, id).await {
            Ok(ticket) => self.dialled(ticket).await,
            Err((denial, grounds)) => {
                self.denied_on(&grounds, Event::of(EventKind::Deny, id, &attempt), &attempt, &denial);
                Err(Refusal::Denied(denial))
            }
        }
    }

    /// Decides about a further request on an existing connection, and records a denial. `asked` is another host that
    /// the request names.
    pub(crate) fn again(&self, ticket: &Ticket, asked: Option<&Host>) -> Result<(), Denial> {
        let attempt = ticket.permit().attempt();
        if let Some(why) = ticket.entry.why() {
            self.denied(self.next_id(), attempt, &why);
            return Err(why);
        }
        let grounds = self.grounds().asked(Check::Keep);
        let learned = ticket.entry.learn(&grounds.policy, &*self.own, &self.followed);
        let Learned { own, behind } = ticket.entry.learned();
        let grounds = Grounds { once: ticket.entry.once.clone(), own, behind, ..grounds };
        let event = |kind, id| Event::of(kind, id, attempt).permitted(ticket.permit(), None);
        if let Err(denial) = learned {
            self.denied(self.next_id(), attempt, &denial);
            return Err(denial);
        }
        if let Err(denial) = ticket.entry.judge(&grounds.policy, grounds.at) {
            self.denied_on(&grounds, event(EventKind::Deny, self.next_id()), attempt, &denial);
            return Err(denial);
        }
        let asked = asked.map(Host::to_string).into_iter().collect();
        let request = Event { asked, ..event(EventKind::Request, ticket.id) };
        let recorded = grounds.must(&request, &self.audit);
        recorded.map_err(|error| denials::internal(error.to_string()))
    }

    /// Carries out every step before the dial. The holder of the ticket settles the budget by dropping it.
    async fn permitted(
        self: &Arc<Self>,
        attempt: &Attempt,
        client: &TcpStream,
        speech: Speech,
        id: u64,
    ) -> Result<Ticket, Refused> {
        let changes = self.host_changes.load(Ordering::Acquire);
        let Decided { permit, charged, ttl_s, grounds } = self.decide(attempt, client, id).await?;
        let other = |denial| (denial, self.grounds());
        if speech == Speech::PlainHttp {
            check_sni(&self.registry.policy(), &permit, Hello::NotTls, self.clock.now()).map_err(other)?;
        }
        let charged = charged.map_or_else(|| Charged::take(self), Ok).map_err(other)?;
        let event = Event::of(EventKind::Allow, id, attempt).permitted(&permit, ttl_s);
        let recorded = grounds.must(&event, &self.audit).map_err(|error| denials::internal(error.to_string()));
        let entered = recorded.and_then(|()| {
            let entry =
                Arc::new(Entry::new(permit, grounds.once, Learned { own: grounds.own, behind: grounds.behind }));
            self.registry.enter(id, Arc::clone(&entry), self.clock.now()).map(|()| entry)
        });
        match entered {
            Ok(entry) => {
                if self.host_changes.load(Ordering::Acquire) != changes {
                    self.ask_again(&entry);
                }
                self.tally().allow(attempt);
                charged.pass_on();
                Ok(Ticket::new(Arc::clone(self), entry, id))
            }
            Err(denial) => Err(other(denial)),
        }
    }

    async fn dialled(&self, ticket: Ticket) -> Result<Opened, Refusal> {
        let outcome = tokio::select! {
            biased;
            why = ticket.entry.until_cut() => return Err(Refusal::Denied(why)),
            outcome = self.dialer.dial(ticket.permit(), &ticket.received) => outcome,
        };
        ticket.count_received().map_err(Refusal::Denied)?;
        match outcome {
            Ok(dialed) => {
                self.bound_buffers(&dialed.stream);
                if let (Route::Addrs(_), Ok(peer)) = (ticket.permit().route(), dialed.stream.peer_addr()) {
                    ticket.dialed.get_or_init(|| peer.ip());
                }
                Ok(Opened { ticket, dialed })
            }
            Err(error) => {
                ticket.failed(&error);
                Err(Refusal::Unreachable(error))
            }
        }
    }

    /// Decides, and asks the approver once where the policy permits a question.
    async fn decide(self: &Arc<Self>, attempt: &Attempt, client: &TcpStream, id: u64) -> Result<Decided, Refused> {
        let (denial, grounds) = match self.decide_with(attempt, id, None).await {
            Err((denial, grounds)) if denial.cause == Cause::MayAsk => (denial, grounds),
            decided => return decided,
        };
        let Some(approver) = &self.approver else { return Err((denial, grounds)) };
        let answer = tokio::select! {
            answer = approver.ask(attempt, &denial) => answer,
            // After a yes, a request would go out for which no client waits.
            () = gone::until_ended(client) => Answer::Deny,
        };
        match answer {
            Answer::Deny => Err((denial, grounds)),
            Answer::Once(rule) => self.decide_with(attempt, id, Some(rule)).await,
            Answer::Again => self.decide_with(attempt, id, None).await,
        }
    }

    async fn decide_with(
        self: &Arc<Self>,
        attempt: &Attempt,
        id: u64,
        once: Option<AnyRule>,
    ) -> Result<Decided, Refused> {
        let mut grounds = Grounds { once, ..self.grounds().asked(Check::Connect) };
        let asked = match self.ask_policy(attempt, id, &mut grounds).await {
            Ok(permitted) => self.not_back_here(permitted, id, &mut grounds).await,
            refused @ Err(_) => refused,
        };
        match asked {
            Ok((permit, charged, ttl_s)) => Ok(Decided { permit, charged, ttl_s, grounds }),
            // Such a denial is not the policy's.
            Err(denial) if denial.code == DenyCode::InternalError || denial.cause == Cause::Budget => {
                Err((denial, Grounds { check: None, ..grounds }))
            }
            Err(denial) => Err((denial, grounds)),
        }
    }

    /// Asks the policy and leaves the inputs of its last decision in `grounds`.
    async fn ask_policy(
        self: &Arc<Self>,
        attempt: &Attempt,
        id: u64,
        grounds: &mut Grounds,
    ) -> Result<Permitted, Denial> {
        let query = match check_name(&*grounds.effective()?, attempt, grounds.at)? {
            Next::Dial(permit) => return Ok((self.literal(attempt, permit, grounds).await?, None, None)),
            Next::Resolve(query) => query,
        };
        let charged = self.paid_look_up(attempt, id, &query, grounds)?;
        let is_exact = query.is_exact();
        let found = self.look_up(&query, self.limits.resolve_time).await;
        let found_here = found.as_ref().map(|found| found.addrs.as_slice()).unwrap_or_default();
        self.know_nat64(found_here, is_exact).await.inspect_err(|_| grounds.check = None)?;
        self.followed.until_asked(&grounds.policy, self.limits.resolve_time).await;
        // The policy may have changed meanwhile.
        (grounds.policy, grounds.at) = (self.registry.policy(), self.clock.now());
        if let Err(error @ ResolveError::TooMany { .. }) = &found {
            grounds.check = None;
            return Err(denials::not_resolved(error));
        }
        let addrs = found.as_ref().map(|found| found.addrs.clone()).unwrap_or_default();
        let sockets: Vec<SocketAddr> =
            addrs.iter().map(|address| SocketAddr::new(*address, attempt.target.port.number())).collect();
        grounds.own = own_among(&grounds.policy, &*self.own, &sockets)?;
        grounds.behind = self.followed.among(&grounds.policy, attempt, addrs.iter().copied());
        let decided = check_addrs(&*grounds.effective()?, query, &addrs, grounds.at);
        grounds.resolved = Some(addrs);
        match (decided, found) {
            // The upstream proxy looks up the name. A replay does not know that an answer is missing.
            (Ok(permit), found) if !permit.addresses_checked() => {
                let ttl_s = found.as_ref().ok().and_then(|found| found.ttl_s);
                unknown_here(found, is_exact).inspect_err(|_| grounds.check = None)?;
                Ok((permit, Some(charged), ttl_s))
            }
            (Ok(permit), Ok(found)) => Ok((permit, Some(charged), found.ttl_s)),
            // Without an address the policy denies too; the error only has a better sentence.
            (Err(denial), Err(error)) if denial.cause == Cause::NotResolved => {
                Err(Denial { explanation: error.to_string(), ..denial })
            }
            (Err(denial), _) => Err(denial),
            (Ok(_), Err(error)) => Err(denials::internal(error.to_string())),
        }
    }
}
