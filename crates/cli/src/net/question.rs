//! One connection that waits for a person, and its words.

use nexus_egress::Answer;
use nexus_policy::net::{Attempt, Program};
use tokio::sync::oneshot;

/// One attempt that waits.
pub struct Question {
    /// The rule that an answer is about, as text.
    pub target: String,
    answer: oneshot::Sender<Answer>,
}

impl Question {
    /// Asks about a rule.
    pub fn new(target: String, answer: oneshot::Sender<Answer>) -> Self {
        Self { target, answer }
    }

    /// Reports whether the attempt has ended meanwhile.
    pub fn is_gone(&self) -> bool {
        self.answer.is_closed()
    }

    /// Gives the answer; the attempt may have ended meanwhile.
    pub fn answer(self, answer: Answer) {
        drop(self.answer.send(answer));
    }
}

/// Returns the rule that an answer is about, as text: for one program where it is known, so that a yes opens no more
/// than was asked.
pub fn target_of(attempt: &Attempt) -> String {
    let only = attempt.program.as_ref().and_then(Program::suffix).unwrap_or_default();
    format!("{}{only}", attempt.target)
}

/// Returns the destination of a rule, without its program.
pub fn place(rule: &str) -> &str {
    rule.split_once('@').map_or(rule, |(place, _)| place)
}

/// Describes a rule as a request to the user.
pub fn question_text(rule: &str) -> String {
    match rule.split_once('@') {
        Some((target, program)) => format!("{program} wants to reach {target}"),
        None => format!("the command wants to reach {rule}"),
    }
}

/// Names the destination, and the program where the answer is for one alone.
pub fn about(rule: &str) -> String {
    match rule.split_once('@') {
        Some((target, program)) => format!("{target} for {program}"),
        None => rule.to_owned(),
    }
}
