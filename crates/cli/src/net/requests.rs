//! The questions of one run among the approvals of this machine, where another session answers them.
//!
//! ```text
//!  ask ─▶ pending ─ response: Waits … Grant (a use is taken) ─▶ once        use_again: a use that is left
//!            └─ No, Over                                 end, withdraw: nothing is left to answer
//! ```
//! A request is for one destination of one run. It ends with its connection, with the time that a question has, or with the run,
//! and a use is on the disk before the connection is made.

use nexus_model::approval::{Actor, ApprovalEvent, ApprovalRefusal, ApprovalState, MAX_USES};
use nexus_model::{ByteText, RunId};
use nexus_runner::state::approvals::{ApprovalError, Approvals, Stored, Subject, Terms, now};
use nexus_runner::state::directory::StateDir;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time within which the uses of an answer are taken, after the time for which its connection may wait.
const LIFE: Duration = Duration::from_secs(3600);

/// Interval in which answers are looked for.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Most questions of one run. A command chooses the names that it asks for, and must not fill the list of its user.
pub const MAX_ASKED: usize = 100;

/// The run that asks, as a person is shown it.
#[derive(Debug, Clone)]
pub struct Asking {
    /// The state directory with the approvals.
    pub places: StateDir,
    /// Id of the run.
    pub run: RunId,
    /// Command of the run.
    pub command: Vec<ByteText>,
    /// Workspace of the run.
    pub workspace: ByteText,
    /// The session that may not answer.
    pub requester: Actor,
    /// Time that a connection waits for its answer.
    pub waits: Duration,
}

/// A yes of another session, of which one use was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Id of the approval.
    pub approval: RunId,
    /// Users and sessions that approved it.
    pub by: String,
}

impl Grant {
    /// Names the approval and who gave it, for a rule and the record.
    pub fn source(&self) -> String {
        format!("{}, approval {}", self.by, self.approval)
    }
}

/// State of a request, with the use that was taken of a granted one.
#[derive(Debug, PartialEq, Eq)]
pub enum Response {
    /// No answer has come yet.
    Waits,
    /// It was approved, and a use was taken.
    Grant(Grant),
    /// A session refused it.
    No(String),
    /// Its time is over, or its uses are.
    Over,
}

/// The requests of one run.
pub struct Requests {
    asking: Asking,
    asked: usize,
    /// Uses that were taken; each has a name of its own.
    used: u64,
    /// The latest request about each destination.
    known: BTreeMap<String, RunId>,
}

impl Requests {
    /// Asks nothing yet.
    pub fn new(asking: Asking) -> Self {
        Self { asking, asked: 0, used: 0, known: BTreeMap::new() }
    }

    fn subject(&self, target: &str) -> Subject {
        Subject::of_connection(self.asking.run, target, &self.asking.command, &self.asking.workspace)
    }

    /// Asks about a destination; `None` when the run has asked too often.
    pub fn ask(&mut self, target: &str) -> Result<Option<RunId>, ApprovalError> {
        if self.asked >= MAX_ASKED {
            return Ok(None);
        }
        self.asked += 1;
        let life = LIFE.saturating_add(self.asking.waits);
        let terms = Terms { life, waits: Some(self.asking.waits), max_uses: MAX_USES };
        let reasons = vec!["no rule allows it, and a connection waits for the answer".to_owned()];
        let approvals = Approvals::open(&self.asking.places)?;
        let asked = approvals.request(&self.subject(target), self.asking.requester.clone(), reasons, terms, now())?;
        self.known.insert(target.to_owned(), asked.id);
        Ok(Some(asked.id))
    }

    /// Looks for the answer to a request, and takes a use of a yes.
    pub fn response(&mut self, id: RunId, target: &str) -> Result<Response, ApprovalError> {
        let approvals = Approvals::open(&self.asking.places)?;
        let stored = approvals.inspect(id, now())?;
        match stored.approval.state {
            ApprovalState::Pending => Ok(Response::Waits),
            ApprovalState::Granted => self.take_use(&approvals, id, target),
            ApprovalState::Denied => {
                Ok(Response::No(stored.approval.denied_by.as_ref().map_or_else(String::new, actor_text)))
            }
            ApprovalState::Used | ApprovalState::Expired | ApprovalState::Withdrawn => Ok(Response::Over),
        }
    }

    /// Takes a use that is left of an answer about this destination.
    pub fn use_again(&mut self, target: &str) -> Result<Option<Grant>, ApprovalError> {
        let Some(id) = self.known.get(target).copied() else { return Ok(None) };
        match self.response(id, target)? {
            Response::Grant(grant) => Ok(Some(grant)),
            Response::Waits | Response::No(_) => Ok(None),
            // Its file may make room for another one from here on.
            Response::Over => {
                self.known.remove(target);
                Ok(None)
            }
        }
    }

    fn take_use(&mut self, approvals: &Approvals, id: RunId, target: &str) -> Result<Response, ApprovalError> {
        self.used += 1;
        let name = format!("{} {}", self.asking.run, self.used);
        match approvals.take_from(id, &self.subject(target), &name, now()) {
            Ok(stored) => Ok(Response::Grant(Grant { approval: id, by: approvers(&stored) })),
            Err(ApprovalError::Refused(ApprovalRefusal::Over { .. })) => Ok(Response::Over),
            Err(error) => Err(error),
        }
    }

    /// Takes a request back that nothing waits for any more.
    pub fn withdraw(&mut self, target: &str) -> Result<(), ApprovalError> {
        let Some(id) = self.known.remove(target) else { return Ok(()) };
        Approvals::open(&self.asking.places)?.answer(id, &ApprovalEvent::Withdraw, now()).map(|_| ())
    }

    /// Takes back everything that is left: the run is over.
    pub fn end(mut self) -> Result<(), ApprovalError> {
        let targets: Vec<String> = self.known.keys().cloned().collect();
        // One that cannot be withdrawn keeps none of the others. Each try may wait for the lock of the approvals.
        let mut failed = Ok(());
        for target in &targets {
            match self.withdraw(target) {
                Ok(()) => {}
                Err(busy @ ApprovalError::Busy) => return Err(busy),
                Err(error) => failed = Err(error),
            }
        }
        failed
    }
}

fn approvers(stored: &Stored) -> String {
    stored.approval.approvers.iter().map(actor_text).collect::<Vec<_>>().join(" and ")
}

/// Names a user and the session that answered.
pub fn actor_text(actor: &Actor) -> String {
    format!("{}, {}", actor.user, actor.credential)
}
