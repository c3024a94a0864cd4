//! Advice at the end of a run, about walls that the command met and could not name.
//!
//! A hint changes nothing: neither the exit code nor what is committed. What comes from inside is cleaned before it is shown.

mod not_found;
mod unread_input;

use super::order::Order;
use super::perhaps::LastWords;
use nexus_driver::NotStarted;
use nexus_model::exit::NOT_FOUND;
use serde::Serialize;

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hint {
    /// A stable word for programs.
    pub code: &'static str,
    /// The sentence for people.
    pub message: String,
}

/// Returns the advice for a command that failed with this exit code.
pub fn for_failed(order: &Order, not_started: Option<&NotStarted>, exit: u8, words: &LastWords) -> Vec<Hint> {
    let mut hints = Vec::new();
    if exit == NOT_FOUND {
        let message = not_found::advice(order, not_started, words);
        hints.extend(message.map(|message| Hint { code: "not_found", message }));
    }
    if exit != 0
        && !order.plan.allow_ptrace
        && let Some(advice) = words.advice()
    {
        hints.push(Hint { code: "tracing", message: advice.to_owned() });
    }
    hints
}

/// Returns the advice for data on standard input that the command was not given.
pub fn for_input(is_passed: bool) -> Option<Hint> {
    let message = "standard input holds data that was not passed to the command. --stdin passes it on; < /dev/null leaves \
                   it out without this line.";
    (!is_passed && unread_input::is_waiting(rustix::stdio::stdin()))
        .then(|| Hint { code: "input_not_passed", message: message.to_owned() })
}
