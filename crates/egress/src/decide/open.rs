//! Leads an attempt to an open connection, in the same steps for every way in.
//!
//! ```text
//!  attempt ─▶ name ─▶ budget ─▶ audit ─▶ look-up ─▶ addresses ─▶ audit ─▶ enter ─▶ dial ─▶ Opened (guard + stream)
//!              │ ▲       │        │         │           │          │        │       │
//!              │ └ ask   └────────┴─────────┴───────────┴──────────┴────────┘       └── Refusal::Unreachable
//!              └────────────────────────────▶ Refusal::Denied
//! ```
//!
//! The order matters: nothing is resolved before the name was decided, counted and, where the program inside chose it,
//! recorded; nothing is dialled before it is in the audit, and a connection is known to reloads before its first packet
//! leaves.

use crate::audit::event::{Event, EventKind};
use crate::decide::charge::{Charged, Permitted};
use crate::decide::client_gone::{self, Waiting};
use crate::decide::context::DecisionContext;
use crate::decide::denials;
use crate::decide::guard::ConnectionGuard;
use crate::decide::look_ups::unknown_here;
use crate::decide::own::own_among;
use crate::decide::programs::caller::ConnectionOwner;
use crate::decide::registry::{Entry, Learned};
use crate::decide::state::Shared;
use crate::seams::{Answer, ResolveError};
use crate::upstream::dial::{DialError, Dialed};
use nexus_policy::net::{
    AnyRule, Attempt, Cause, Check, Denial, DenyCode, Hello, Next, Permit, Route, check_addrs, check_name, check_sni,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::net::TcpStream;

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
    pub(crate) guard: ConnectionGuard,
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

/// Decision for a connection, with its inputs for the record.
pub(crate) struct Decided {
    pub(crate) permit: Permit,
    /// Charge of a look-up, if one was paid for.
    charged: Option<Charged>,
    ttl_s: Option<u32>,
    pub(crate) context: DecisionContext,
}

/// Denial with its inputs for the record.
pub(crate) type Refused = (Denial, DecisionContext);

impl Shared {
    /// Leads an attempt to a connection, as long as the client waits for it.
    pub(crate) async fn open(
        self: &Arc<Self>,
        attempt: Attempt,
        caller: &ConnectionOwner,
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
        caller: &ConnectionOwner,
        client: &TcpStream,
        speech: Speech,
    ) -> Result<Opened, Refusal> {
        let attempt = caller.complete(self, attempt).await;
        let id = self.next_id();
        match self.permitted(&attempt, client, speech, id).await {
            Ok(guard) => self.dialled(guard).await,
            Err((denial, context)) => {
                self.denied_on(&context, Event::of(EventKind::Deny, id, &attempt), &attempt, &denial);
                Err(Refusal::Denied(denial))
            }
        }
    }

    /// Carries out every step before the dial. The holder of the connection guard settles the budget by dropping it.
    async fn permitted(
        self: &Arc<Self>,
        attempt: &Attempt,
        client: &TcpStream,
        speech: Speech,
        id: u64,
    ) -> Result<ConnectionGuard, Refused> {
        let changes = self.host_changes.load(Ordering::Acquire);
        let Decided { permit, charged, ttl_s, context } = self.decide(attempt, client, id).await?;
        let other = |denial| (denial, self.context());
        if speech == Speech::PlainHttp {
            check_sni(&self.registry.policy(), &permit, Hello::NotTls, self.clock.now()).map_err(other)?;
        }
        let charged = charged.map_or_else(|| Charged::take(self), Ok).map_err(other)?;
        let event = Event::of(EventKind::Allow, id, attempt).permitted(&permit, ttl_s);
        let recorded = context.must(&event, &self.audit).map_err(|error| denials::internal(error.to_string()));
        let entered = recorded.and_then(|()| {
            let entry =
                Arc::new(Entry::new(permit, context.once, Learned { own: context.own, behind: context.behind }));
            self.registry.enter(id, Arc::clone(&entry), self.clock.now()).map(|()| entry)
        });
        match entered {
            Ok(entry) => {
                if self.host_changes.load(Ordering::Acquire) != changes {
                    self.ask_again(&entry);
                }
                self.tally().allow(attempt);
                charged.pass_on();
                Ok(ConnectionGuard::new(Arc::clone(self), entry, id))
            }
            Err(denial) => Err(other(denial)),
        }
    }

    async fn dialled(&self, guard: ConnectionGuard) -> Result<Opened, Refusal> {
        let outcome = tokio::select! {
            biased;
            why = guard.entry.until_cut() => return Err(Refusal::Denied(why)),
            outcome = self.dialer.dial(guard.permit(), &guard.received) => outcome,
        };
        guard.count_received().map_err(Refusal::Denied)?;
        match outcome {
            Ok(dialed) => {
                self.bound_buffers(&dialed.stream);
                if let (Route::Addrs(_), Ok(peer)) = (guard.permit().route(), dialed.stream.peer_addr()) {
                    guard.dialed.get_or_init(|| peer.ip());
                }
                Ok(Opened { guard, dialed })
            }
            Err(error) => {
                guard.failed(&error);
                Err(Refusal::Unreachable(error))
            }
        }
    }

    /// Decides, and asks the approver once where the policy permits a question.
    async fn decide(self: &Arc<Self>, attempt: &Attempt, client: &TcpStream, id: u64) -> Result<Decided, Refused> {
        let (denial, context) = match self.decide_with(attempt, id, None).await {
            Err((denial, context)) if denial.cause == Cause::MayAsk => (denial, context),
            decided => return decided,
        };
        let Some(approver) = &self.approver else { return Err((denial, context)) };
        let answer = tokio::select! {
            answer = approver.ask(attempt, &denial) => answer,
            // After a yes, a request would go out for which no client waits.
            () = client_gone::until_ended(client) => Answer::Deny,
        };
        match answer {
            Answer::Deny => Err((denial, context)),
            Answer::Once(rule) => self.decide_with(attempt, id, Some(rule)).await,
            Answer::Again => self.decide_with(attempt, id, None).await,
        }
    }

    /// Decides without a question to a person; `once` is the rule that a person gave for this attempt.
    pub(crate) async fn decide_with(
        self: &Arc<Self>,
        attempt: &Attempt,
        id: u64,
        once: Option<AnyRule>,
    ) -> Result<Decided, Refused> {
        let mut context = DecisionContext { once, ..self.context().asked(Check::Connect) };
        let asked = match self.ask_policy(attempt, id, &mut context).await {
            Ok(permitted) => self.not_back_here(permitted, id, &mut context).await,
            refused @ Err(_) => refused,
        };
        match asked {
            Ok((permit, charged, ttl_s)) => Ok(Decided { permit, charged, ttl_s, context }),
            // Such a denial is not the policy's.
            Err(denial) if denial.code == DenyCode::InternalError || denial.cause == Cause::Budget => {
                Err((denial, DecisionContext { check: None, ..context }))
            }
            Err(denial) => Err((denial, context)),
        }
    }

    /// Asks the policy and leaves the inputs of its last decision in `context`.
    async fn ask_policy(
        self: &Arc<Self>,
        attempt: &Attempt,
        id: u64,
        context: &mut DecisionContext,
    ) -> Result<Permitted, Denial> {
        let query = match check_name(&*context.effective()?, attempt, context.at)? {
            Next::Dial(permit) => return Ok((self.literal(attempt, permit, context).await?, None, None)),
            Next::Resolve(query) => query,
        };
        let charged = self.paid_look_up(attempt, id, &query, context)?;
        let is_exact = query.is_exact();
        let found = self.look_up(&query, self.limits.resolve_time).await;
        let found_here = found.as_ref().map(|found| found.addrs.as_slice()).unwrap_or_default();
        self.know_nat64(found_here, is_exact).await.inspect_err(|_| context.check = None)?;
        self.followed.until_asked(&context.policy, self.limits.resolve_time).await;
        // The policy may have changed meanwhile.
        (context.policy, context.at) = (self.registry.policy(), self.clock.now());
        if let Err(error @ ResolveError::TooMany { .. }) = &found {
            context.check = None;
            return Err(denials::not_resolved(error));
        }
        let addrs = found.as_ref().map(|found| found.addrs.clone()).unwrap_or_default();
        let sockets: Vec<SocketAddr> =
            addrs.iter().map(|address| SocketAddr::new(*address, attempt.target.port.number())).collect();
        context.own = own_among(&context.policy, &*self.own, &sockets)?;
        context.behind = self.followed.among(&context.policy, attempt, addrs.iter().copied());
        let decided = check_addrs(&*context.effective()?, query, &addrs, context.at);
        context.resolved = Some(addrs);
        match (decided, found) {
            // The upstream proxy looks up the name. A replay does not know that an answer is missing.
            (Ok(permit), found) if !permit.addresses_checked() => {
                let ttl_s = found.as_ref().ok().and_then(|found| found.ttl_s);
                unknown_here(found, is_exact).inspect_err(|_| context.check = None)?;
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
