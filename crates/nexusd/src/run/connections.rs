//! Connections that no rule allows: a person of the control plane decides, while the command waits.
//!
//! ```text
//!  egress ─ Question ─▶ this thread ─ every 500 ms ─▶ control plane ◀─ API, console, nexus approvals --fleet
//!    ▲                     │ at most as long as a connection waits, and not longer than its claim
//!    └───── Answer ────────┘ allowed: a use was taken for this connection        anything else: denied
//! ```
//! Several connections wait at a time, those to one destination for one answer. What goes wrong is a no, and a control plane that does
//! not answer is asked again while the connection waits. An answer counts only where it is about exactly this connection.

use crate::live::ActiveClaim;
use crate::run::control::Wanted;
use crate::source::{SourceError, WorkSource};
use nexus_api::conduits::{ConnectionAnswer, ConnectionRequest};
use nexus_api::retry::{self, Next};
use nexus_egress::{Answer, Approver, Asked, Egress};
use nexus_model::RunId;
use nexus_model::approval::ApprovalState;
use nexus_model::digest::Digest;
use nexus_model::ids::ApprovalId;
use nexus_policy::net::{Attempt, Denial, Host, Program};
use nexus_runner::net::rules;
use nexus_runner::net::service::{Approved, Questions, QuestionsPanicked};
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Time between two looks for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Destinations that wait for an answer at one time.
const MAX_OPEN: usize = 16;
/// Time by which the thread that asks ends a wait before the connection does.
const MARGIN: Duration = Duration::from_secs(1);
/// Answers that are kept apart for the receipt.
const MAX_KEPT: usize = 1000;
/// Time that a call which is on its way has when the run ends.
const END_WITHIN: Duration = Duration::from_secs(2);

/// The claim that asks.
pub struct Asking {
    /// The claim: its end ends every wait.
    pub live: Arc<ActiveClaim>,
    /// The control plane.
    pub source: Arc<dyn WorkSource>,
    /// Hash of the specification as it was claimed.
    pub spec: Digest,
    /// Number of users who must approve a connection by the documents of this territory.
    pub quorum: u32,
    /// Time that a connection waits.
    pub waits: Duration,
}

impl Asking {
    /// Returns the approval where the answer is about exactly this connection and given by enough users.
    fn approval_in(&self, place: &Place, answer: &ConnectionAnswer) -> Option<ApprovalId> {
        let about = answer.connection.as_ref()?;
        let is_this = about.directive_id == self.live.directive
            && about.fence == self.live.fence
            && about.spec == self.spec
            && about.destination == place.destination
            && about.program == place.program
            && about.digest() == answer.subject;
        let users: BTreeSet<&String> = answer.approved_by.iter().collect();
        let are_enough = u32::try_from(users.len()).unwrap_or(u32::MAX) >= self.quorum.max(1);
        answer.approval_id.filter(|_| answer.allowed && is_this && are_enough)
    }
}

/// One destination, for one program where the policy tells programs apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    destination: String,
    program: Option<String>,
}

impl Place {
    /// Returns the text of the rule for it.
    fn rule(&self) -> String {
        let program = self.program.as_ref().map(|program| format!("@{program}")).unwrap_or_default();
        format!("{}{program}", self.destination)
    }
}

/// One connection that waits.
struct Question {
    place: Place,
    answer: oneshot::Sender<Answer>,
}

/// A connection with the name of its use.
struct Held {
    name: String,
    end: Instant,
    answer: oneshot::Sender<Answer>,
}

/// A destination with the connections that wait for an answer about it.
struct Waiting {
    place: Place,
    next_call: Instant,
    held: Vec<Held>,
}

/// The answers so far. Once it is closed none is added: the receipt has each connection that was let through.
#[derive(Default)]
struct Grants {
    kept: Vec<Approved>,
    is_closed: bool,
}

/// The side of the egress.
struct Asks {
    questions: Sender<Option<Question>>,
    /// Time after which a connection is denied, also while a call gets no answer.
    waits: Duration,
}

impl Approver for Asks {
    fn ask<'a>(&'a self, attempt: &'a Attempt, _: &'a Denial) -> Asked<'a> {
        let (answer, answered) = oneshot::channel();
        let place = Place {
            destination: attempt.target.to_string(),
            program: attempt
                .program
                .as_ref()
                .filter(|program| program.suffix().is_some())
                .map(|Program(path)| path.clone()),
        };
        // No answer opens an address.
        let sent = matches!(attempt.target.host, Host::Name(_))
            && self.questions.send(Some(Question { place, answer })).is_ok();
        let waits = self.waits + MARGIN;
        Box::pin(async move {
            match tokio::time::timeout(waits, answered).await {
                Ok(Ok(answer)) if sent => answer,
                _ => Answer::Deny,
            }
        })
    }
}

/// The questions of one run.
pub struct Connections {
    asking: Option<Asking>,
    running: Option<(Sender<Option<Question>>, Receiver<()>)>,
    grants: Arc<Mutex<Grants>>,
}

impl Connections {
    /// Asks nothing yet.
    #[must_use]
    pub fn new(asking: Asking) -> Self {
        Self { asking: Some(asking), running: None, grants: Arc::default() }
    }
}

impl Questions for Connections {
    fn start(&mut self) -> io::Result<Arc<dyn Approver>> {
        let asking = self.asking.take().ok_or(io::ErrorKind::Unsupported)?;
        let waits = asking.waits;
        let (sender, questions) = channel();
        let (ended, end) = channel();
        let grants = Arc::clone(&self.grants);
        std::thread::Builder::new().name("nexusd-ask".to_owned()).spawn(move || {
            Asker { asking, open: Vec::new(), refused: BTreeSet::new(), uses: 0, grants }.serve(&questions);
            // The run may have ended without it.
            ended.send(()).ok();
        })?;
        self.running = Some((sender.clone(), end));
        Ok(Arc::new(Asks { questions: sender, waits }))
    }

    fn attach(&self, _: &Arc<Egress>) {}

    fn end(self: Box<Self>) -> Result<Vec<Approved>, QuestionsPanicked> {
        let mut has_panicked = false;
        if let Some((sender, end)) = self.running {
            sender.send(None).ok();
            // A call to a control plane that does not answer holds up no end of a run.
            has_panicked = end.recv_timeout(END_WITHIN) == Err(RecvTimeoutError::Disconnected);
        }
        let mut grants = lock(&self.grants);
        grants.is_closed = true;
        if has_panicked { Err(QuestionsPanicked) } else { Ok(std::mem::take(&mut grants.kept)) }
    }
}

fn lock(grants: &Mutex<Grants>) -> MutexGuard<'_, Grants> {
    grants.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that asks.
struct Asker {
    asking: Asking,
    open: Vec<Waiting>,
    /// Destinations that were refused, or about which no answer came.
    refused: BTreeSet<Place>,
    uses: u64,
    grants: Arc<Mutex<Grants>>,
}

impl Asker {
    fn serve(mut self, questions: &Receiver<Option<Question>>) {
        loop {
            let next = match self.open.iter().map(|waiting| waiting.next_call).min() {
                None => questions.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => questions.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match next {
                Ok(Some(question)) => self.take(question),
                Err(RecvTimeoutError::Timeout) => {}
                // What waits is dropped, and denied by that.
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.inspect();
        }
    }

    fn take(&mut self, Question { place, answer }: Question) {
        if self.refused.contains(&place) || self.is_over() {
            return;
        }
        self.uses += 1;
        let held = Held { name: format!("c{}", self.uses), end: Instant::now() + self.asking.waits, answer };
        let has_room = self.open.len() < MAX_OPEN;
        match self.open.iter_mut().find(|waiting| waiting.place == place) {
            Some(waiting) => waiting.held.push(held),
            None if has_room => {
                self.open.push(Waiting { place, next_call: Instant::now(), held: vec![held] });
            }
            None => {}
        }
    }

    /// Reports whether the claim is over, or its command is about to end.
    fn is_over(&self) -> bool {
        let live = &self.asking.live;
        live.control.wanted() != Wanted::Nothing || live.is_lost() || live.left().is_zero()
    }

    /// Looks for the answer to each destination whose time has come, and lets go what is answered or waits no more.
    fn inspect(&mut self) {
        // One call that gets no answer is enough: each may last as long as a call can.
        let mut is_away = false;
        for mut waiting in std::mem::take(&mut self.open) {
            let now = Instant::now();
            // Those that waited long enough are dropped, and denied by that.
            let is_late = waiting.held.iter().all(|held| held.end <= now);
            waiting.held.retain(|held| held.end > now && !held.answer.is_closed());
            if self.is_over() {
                continue;
            }
            if waiting.held.is_empty() {
                if is_late {
                    self.refused.insert(waiting.place.clone());
                }
                is_away = is_away || self.withdraw(&waiting.place);
                continue;
            }
            if waiting.next_call > now || is_away {
                waiting.next_call = waiting.next_call.max(now + LOOK_EVERY);
                self.open.push(waiting);
                continue;
            }
            is_away = self.inspect_one(waiting);
        }
    }

    /// Looks for the answer about one destination. Each connection takes a use of its own. Returns whether no answer came.
    fn inspect_one(&mut self, mut waiting: Waiting) -> bool {
        let mut is_away = false;
        waiting.held.reverse();
        while let Some(held) = waiting.held.pop() {
            let answer = self.call(&waiting.place, &held, false);
            match answer {
                Ok(answer) if answer.allowed => {
                    let Some(approval) = self.asking.approval_in(&waiting.place, &answer) else {
                        self.refused.insert(waiting.place);
                        return false;
                    };
                    self.allow(&waiting.place, held, approval, &answer.approved_by);
                }
                Ok(ConnectionAnswer { state: ApprovalState::Pending, .. }) => {
                    waiting.held.push(held);
                    break;
                }
                Err(error) if matches!(retry::next(error.outcome(), 1, 0.0), Next::Again(_)) => {
                    is_away = true;
                    waiting.held.push(held);
                    break;
                }
                Ok(_) | Err(_) => {
                    self.refused.insert(waiting.place);
                    return false;
                }
            }
        }
        waiting.held.reverse();
        if !waiting.held.is_empty() {
            waiting.next_call = Instant::now() + LOOK_EVERY;
            self.open.push(waiting);
        }
        is_away
    }

    fn call(&self, place: &Place, held: &Held, gone: bool) -> Result<ConnectionAnswer, SourceError> {
        // Rounded down: the request ends before its connection, and an answer that comes later finds it over.
        let left = held.end.saturating_duration_since(Instant::now()).as_secs().max(1);
        let request = ConnectionRequest {
            destination: place.destination.clone(),
            program: place.program.clone(),
            use_name: held.name.clone(),
            wait_seconds: u32::try_from(left).unwrap_or(u32::MAX),
            gone,
        };
        let live = &self.asking.live;
        self.asking.source.connection(live.directive, &live.token(), &request)
    }

    /// Tells the control plane that nothing waits for this destination. Without an answer, as `true` says, the request ends with its time.
    fn withdraw(&self, place: &Place) -> bool {
        let (answer, _) = oneshot::channel();
        let held = Held { name: "gone".to_owned(), end: Instant::now(), answer };
        matches!(self.call(place, &held, true), Err(SourceError::NoAnswer { .. }))
    }

    fn allow(&self, place: &Place, held: Held, approval: ApprovalId, by: &[String]) {
        let by = format!("key {}", by.join(" and key "));
        let Ok(rule) = rules::approved(&place.rule(), &format!("{by}, approval {approval}")) else { return };
        let mut grants = lock(&self.grants);
        if grants.is_closed || self.is_over() {
            return;
        }
        // The connection may have ended meanwhile: its use stays taken, and nothing was let through.
        if held.answer.send(Answer::Once(rule)).is_err() {
            return;
        }
        let approval = Some(RunId::from_bytes(*approval.as_bytes()));
        let to = place.rule();
        let is_same = |one: &&mut Approved| one.to == to && one.approval == approval;
        let has_room = grants.kept.len() < MAX_KEPT;
        match grants.kept.iter_mut().find(is_same) {
            Some(known) => known.connections = known.connections.map(|count| count + 1),
            None if has_room => {
                grants.kept.push(Approved { to, by, approval, connections: Some(1) });
            }
            None => {}
        }
    }
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
