//! Refuses what policy documents forbid, with the line that says so.

use crate::failure::Failure;
use nexus_policy::command::Commands;
use nexus_policy::document::{Answer, Effective, Question, RunRights, Verdict};
use std::ffi::OsStr;

/// The code of a run that a policy document refuses.
pub const CODE: &str = "policy";

/// The advice for such a run.
pub const HINT: &str = "nexus policy explain shows what may be asked for; ask for less, or ask the owner of the policy";

/// Refuses what `asks` for where a document forbids it.
pub fn allowed(verdict: &Verdict, asks: &str) -> Result<(), Failure> {
    match verdict.forbidden.first() {
        None => Ok(()),
        Some(why) => Err(Failure::refused(CODE, format!("{asks}, and a policy forbids it: {why}"), HINT)),
    }
}

/// Refuses a secret that no document lists.
pub fn secret(policies: &Effective, name: &OsStr) -> Result<(), Failure> {
    let shown = name.to_string_lossy().into_owned();
    allowed(&policies.ask(&Question::Secret(shown.clone())), &format!("--env-secret {shown} passes a secret"))
}

/// Refuses a command in a sandbox that runs already: no approval is for one. The rights of the sandbox may be those that another
/// command was approved with, so no rule lets it go.
pub fn no_further_command(policies: &Effective, words: &[String]) -> Result<(), Failure> {
    match policies
        .exec_answer(&Commands::of_words(words), RunRights::Other)
        .filter(|answer| answer.value != Answer::Skip)
    {
        None => Ok(()),
        Some(answer) => {
            let message = format!("A policy says {} about this command ({})", answer.value.word(), answer.from);
            let hint = match answer.value {
                Answer::Forbidden => HINT,
                Answer::Skip | Answer::NeedsApproval => "Start it with nexus run, which asks for an approval.",
            };
            Err(Failure::refused(CODE, message, hint))
        }
    }
}
