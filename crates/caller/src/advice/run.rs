//! Gives each error of a run its advice.

use crate::advice::go_on::advice as go_on;
use crate::advice::launch;
use crate::failure::Failure;
use crate::failures::INTERNAL_ADVICE;
use nexus_runner::run::error::{ReceiptError, RunError};
use nexus_runner::settle::problem::SettleProblem;
use nexus_runner::settle::settled::ChangesState;

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let hint = match error {
            RunError::Prepare(error) => return launch::prepare_failure(&error),
            RunError::NetworkRecord(error) => return error.into(),
            RunError::Start(error) => return launch::start_failure(&error),
            RunError::NotStarted(reason) => return launch::not_started_failure(&reason),
            RunError::Serve(error) => return error.into(),
            RunError::Unsettled(problem) => return problem.into(),
            RunError::Receipt(error) => return error.into(),
            RunError::BrokenUnsettled { broken, problem } => {
                let second = Self::from(problem);
                return Self { message: Self::from(*broken).and_then(&second).message, ..second };
            }
            RunError::Broken { .. } => return broken(error),
            RunError::Then { first, then } => return Self::from(*first).and_then(&(*then).into()),
            RunError::Record { .. } => "make room there, or set NEXUS_STATE_DIR to another directory",
            RunError::Lock { .. } => "wait for the other run, or end it",
            RunError::Layer { .. } => {
                "make room in the state directory, set NEXUS_STATE_DIR to a directory on another disk, or use --direct"
            }
            RunError::Covers(_) | RunError::Moved(_) => "run it again",
            RunError::Unstarted(_) => "nothing was run; nexus doctor shows what works here",
            RunError::Output(_) => "look at where its output goes: is the disk full?",
            RunError::Input(_) => "look at what standard input is, or leave it out with --no-stdin",
            RunError::Internal { .. } => INTERNAL_ADVICE,
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}

/// Adds to the advice of an error what to do about the changes of the run that it cut short.
fn broken(error: RunError) -> Failure {
    let RunError::Broken { broken, run, state, problem } = error else { return error.into() };
    let failure = Failure::from(*broken);
    let what = nexus_runner::run::error::became(state);
    let why = problem.map(|problem| format!("; {}", Failure::from(*problem).message)).unwrap_or_default();
    let message = format!("{}; {what}{why}", failure.message);
    let hint = match state {
        ChangesState::None | ChangesState::Committed | ChangesState::Discarded => failure.hint,
        ChangesState::Parked | ChangesState::Failed => {
            let show = format!("nexus changes show --run {run} shows them");
            if failure.hint.is_empty() { show } else { format!("{show}. {}", failure.hint) }
        }
    };
    Failure { message, hint, ..failure }
}

impl From<SettleProblem> for Failure {
    fn from(problem: SettleProblem) -> Self {
        let hint = match &problem {
            SettleProblem::Discard { run, .. } => format!("nexus changes reject --run {run} tries again"),
            SettleProblem::NotCommitted { run, .. } => format!("they are parked: nexus changes show --run {run}"),
            SettleProblem::Gone { .. } => "make room in the state directory and run the command again".to_owned(),
            SettleProblem::Lost { run, from_memory, upper, .. } => {
                let kept = if *from_memory { "what could be saved of them is" } else { "they are" };
                format!(
                    "{kept} kept: nexus changes show --run {run} tries to read them again, nexus changes reject --run {run} \
                     throws them away, and the files are in {}",
                    upper.display()
                )
            }
            SettleProblem::Conflict { waits: false, .. } => "both versions are there: compare them".to_owned(),
            SettleProblem::Conflict { run, .. } => {
                format!("the changes of the run are parked: nexus changes show --run {run}")
            }
            SettleProblem::LeftOut { .. } => String::new(),
            SettleProblem::Interrupted { run, ending, .. } => go_on(run, *ending),
            SettleProblem::RestUnreadable { run, .. } => format!("nexus changes show --run {run} tries again"),
            SettleProblem::NoteUnsynced { run, .. } => format!("nexus changes show --run {run} shows them"),
            SettleProblem::LingersDirect => "Other runs in this directory wait until it is gone".to_owned(),
            SettleProblem::LingersParked { run } | SettleProblem::LingersUnnoted { run, .. } => {
                format!("nexus changes show --run {run} shows them when it is gone")
            }
            SettleProblem::LingersDiscarded => "later commands remove it".to_owned(),
        };
        Self::refused(problem.code(), problem.to_string(), hint)
    }
}

impl From<ReceiptError> for Failure {
    fn from(error: ReceiptError) -> Self {
        let hint = match &error {
            ReceiptError::NetworkHash | ReceiptError::ChangesHash => "",
            ReceiptError::Issue(_) => {
                "the command ran and its changes are as reported; look at the state directory's disk and permissions"
            }
        };
        Self::refused(error.code(), error.to_string(), hint)
    }
}
