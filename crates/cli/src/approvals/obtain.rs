//! The approval of a run whose policy asks for one.

use super::caller;
use crate::failure::Failure;
use nexus_policy::command::{Verdict, classify};
use nexus_policy::document::{Act, Answer, Effective};
use nexus_runner::plan::resolve::ResolvedRun;
use nexus_runner::state::approvals::{Approvals, ExecSubject, now};
use std::time::Duration;

/// Time within which a request is answered and used.
const LIFE: Duration = Duration::from_secs(3600);

/// Takes a use of an approval for exactly this run, right before it starts, or asks for one and refuses the run. Without a
/// policy that asks for approvals nothing happens.
pub fn obtain(policies: &Effective, run: &ResolvedRun) -> Result<(), Failure> {
    let Some(asks) = policies.answer(Act::Exec).filter(|answer| answer.value == Answer::NeedsApproval) else {
        return Ok(());
    };
    let subject = ExecSubject::of(run)?;
    let approvals = Approvals::open(&run.site.places)?;
    if approvals.take(&subject, &run.plan.run_id.to_string(), now())?.is_some() {
        return Ok(());
    }
    let mut reasons = vec![format!("a policy asks for it ({})", asks.from)];
    let line: Vec<String> = run.plan.argv.iter().map(|word| word.as_path().display().to_string()).collect();
    // A shell's own line is the one that a person has to read.
    let line = match line.as_slice() {
        [_, flag, text] if flag == "-c" => text.clone(),
        words => words.join(" "),
    };
    let found = classify(&line);
    if found.verdict == Verdict::Forbidden {
        let message = format!("A command that no approval lets through: {}", found.reasons.join("; "));
        return Err(Failure::refused("forbidden", message, "Run it outside of Nexus if you must."));
    }
    reasons.extend(found.reasons);
    let asked = approvals.request(&subject, caller()?, reasons, LIFE, now())?;
    let message = format!("A policy lets this command start only with an approval ({}); {} waits for one", asks.from, asked.id);
    let hint = format!("nexus approvals approve {} in another terminal lets exactly this run once; then run it again", asked.id);
    Err(Failure::refused("approval_required", message, hint))
}
