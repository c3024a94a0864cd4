//! `--ask=approvals`: another session decides about what no rule allows, and nothing is asked on a terminal.
//!
//! ```text
//!  egress ─ Question ─▶ this thread ─ request ─▶ approvals of this machine ◀─ nexus approvals approve|deny
//!     ▲                     │ looks every 200 ms, at most as long as a question waits
//!     └────── Answer ───────┘ once: a use was taken      no, or no answer: deny, and not asked again in this run
//! ```
//! Several connections wait at a time, those to one destination for one answer. What goes wrong with the approvals is a no.

use super::given_answers::Grants;
use super::question::{Question, about, place, question_text};
use super::requests::{Grant, LOOK_EVERY, Requests, Response};
use nexus_egress::Answer;
use nexus_receipt::Approved;
use nexus_runner::net::rules;
use nexus_runner::state::approvals::ApprovalError;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Destinations that wait for an answer at one time.
const MAX_OPEN: usize = 16;

/// A request with the connections that wait for its answer.
struct Waiting {
    target: String,
    id: nexus_model::RunId,
    end: Instant,
    questions: Vec<Question>,
}

/// The questions of one run, while another session is asked.
pub struct Elsewhere {
    requests: Requests,
    waits: Duration,
    /// Tells the caller of the run that something waits; `None` where its terminal belongs to the command.
    tell: Option<fn(&str)>,
    open: Vec<Waiting>,
    /// Places that were refused, or about which no answer came.
    refused: BTreeSet<String>,
    grants: Grants,
}

impl Elsewhere {
    /// Asks nothing yet.
    pub fn new(requests: Requests, waits: Duration, tell: Option<fn(&str)>) -> Self {
        Self { requests, waits, tell, open: Vec::new(), refused: BTreeSet::new(), grants: Grants::default() }
    }

    /// Serves the questions until `None` comes, and returns what was let through.
    pub fn serve(mut self, questions: &Receiver<Option<Question>>) -> Vec<Approved> {
        loop {
            let next = if self.open.is_empty() {
                questions.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                questions.recv_timeout(LOOK_EVERY)
            };
            match next {
                Ok(Some(question)) => self.take(question),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
            }
            self.inspect();
        }
        for waiting in std::mem::take(&mut self.open) {
            deny(waiting.questions);
        }
        if let Err(error) = self.requests.end() {
            tracing::debug!(code = error.code(), "what waited for an answer could not be withdrawn");
        }
        self.grants.all()
    }

    fn take(&mut self, question: Question) {
        if self.refused.contains(place(&question.target)) {
            return question.answer(Answer::Deny);
        }
        if let Some(waiting) = self.open.iter_mut().find(|waiting| waiting.target == question.target) {
            return waiting.questions.push(question);
        }
        match self.requests.use_again(&question.target) {
            Ok(Some(grant)) => self.allow(question, &grant),
            Ok(None) => self.ask(vec![question]),
            Err(error) => self.failed(vec![question], &error),
        }
    }

    /// Asks about the destination of these connections.
    fn ask(&mut self, questions: Vec<Question>) {
        let Some(first) = questions.first() else { return };
        let target = first.target.clone();
        let asked = if self.open.len() < MAX_OPEN { self.requests.ask(&target) } else { Ok(None) };
        match asked {
            Ok(Some(id)) => {
                if let Some(tell) = self.tell {
                    let seconds = self.waits.as_secs();
                    tell(&format!(
                        "{}; nexus approvals approve {id} in another terminal lets it ({seconds} s)",
                        question_text(&target)
                    ));
                }
                self.open.push(Waiting { target, id, end: Instant::now() + self.waits, questions });
            }
            Ok(None) => deny(questions),
            Err(error) => self.failed(questions, &error),
        }
    }

    /// Refuses connections since the approvals cannot be used: without them no person can be asked.
    fn failed(&mut self, questions: Vec<Question>, error: &ApprovalError) {
        if let (Some(tell), Some(question)) = (self.tell, questions.first()) {
            tell(&format!("{} stays blocked: {error}", about(&question.target)));
        }
        deny(questions);
    }

    fn allow(&mut self, question: Question, grant: &Grant) {
        match rules::approved(&question.target, &grant.source()) {
            Ok(rule) => {
                self.grants.of_approval(&question.target, grant);
                question.answer(Answer::Once(rule));
            }
            Err(_) => question.answer(Answer::Deny),
        }
    }

    /// Looks at each request, and lets go what is answered or no longer waits.
    fn inspect(&mut self) {
        let mut broken = None;
        for mut waiting in std::mem::take(&mut self.open) {
            // Each try may wait for the lock of the approvals: one that fails is enough.
            if let Some(error) = &broken {
                self.failed(waiting.questions, error);
                continue;
            }
            waiting.questions.retain(|question| !question.is_gone());
            if waiting.questions.is_empty() {
                self.withdraw(&waiting.target);
                continue;
            }
            match self.requests.response(waiting.id, &waiting.target) {
                Ok(Response::Waits) if Instant::now() < waiting.end => self.open.push(waiting),
                Ok(Response::Waits) => {
                    self.withdraw(&waiting.target);
                    self.refuse(waiting);
                }
                Ok(Response::Over | Response::No(_)) => self.refuse(waiting),
                Ok(Response::Grant(grant)) => self.granted(waiting, &grant),
                Err(error) => {
                    self.failed(waiting.questions, &error);
                    broken = Some(error);
                }
            }
        }
    }

    /// Gives each connection that waits a use of its own; those for which none is left ask again.
    fn granted(&mut self, waiting: Waiting, first: &Grant) {
        let mut left = waiting.questions.into_iter();
        if let Some(question) = left.next() {
            self.allow(question, first);
        }
        let mut over = Vec::new();
        for question in left {
            match self.requests.use_again(&question.target) {
                Ok(Some(grant)) => self.allow(question, &grant),
                Ok(None) => over.push(question),
                Err(error) => self.failed(vec![question], &error),
            }
        }
        self.ask(over);
    }

    fn refuse(&mut self, waiting: Waiting) {
        self.refused.insert(place(&waiting.target).to_owned());
        deny(waiting.questions);
    }

    fn withdraw(&mut self, target: &str) {
        if let Err(error) = self.requests.withdraw(target) {
            tracing::debug!(code = error.code(), "a request could not be withdrawn; it ends with its time");
        }
    }
}

fn deny(questions: Vec<Question>) {
    for question in questions {
        question.answer(Answer::Deny);
    }
}
