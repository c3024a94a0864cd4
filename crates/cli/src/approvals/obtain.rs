//! The approval of a run whose policy asks for one.

use super::{caller, of_session};
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::run::input::Input;
use nexus_model::ByteText;
use nexus_policy::command::{Commands, Verdict, classify};
use nexus_policy::document::{Answer, Effective};
use nexus_runner::plan::resolve::ResolvedRun;
use nexus_runner::state::approvals::{Approvals, ExecSubject, now};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Time within which a request is answered and used.
const LIFE: Duration = Duration::from_secs(3600);

/// Takes a use of an approval for exactly this run, right before it starts, or asks for one and refuses the run. Without a
/// policy that asks for approvals nothing happens.
pub fn obtain(policies: &Effective, run: &ResolvedRun, input: Input, args: &RunArgs) -> Result<(), Failure> {
    let words: Vec<String> = run.plan.argv.iter().map(|word| word.as_path().display().to_string()).collect();
    let Some(asks) = policies.exec_answer(&Commands::of_words(&words)) else { return Ok(()) };
    match asks.value {
        Answer::Skip => return Ok(()),
        Answer::NeedsApproval => {}
        Answer::Forbidden => {
            let message = format!("A policy forbids this command ({})", asks.from);
            return Err(Failure::refused("policy", message, "nexus policy explain shows the rules about commands."));
        }
    }
    let input = match input {
        Input::Empty | Input::NotPassed => "empty",
        // What comes that way is not known before it is read, so it cannot be part of what is approved.
        Input::AsRead | Input::Ahead => "passed on, whatever it is",
    };
    let publish: Vec<String> = args.publish.iter().map(|publish| format!("{publish:?}")).collect();
    let file = |path: &Option<PathBuf>| path.as_deref().map(ByteText::from);
    let around = json!({
        "input": input, "publish": publish, "terminal": args.tty, "raw": args.raw, "detached": args.detach,
        "full_output": file(&args.full_output), "receipt": file(&args.receipt),
        "require": args.require.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let subject = ExecSubject::of(run, &around)?;
    let approvals = Approvals::open(&run.site.places)?;
    if approvals.take(&subject, &run.plan.run_id.to_string(), now())?.is_some() {
        return Ok(());
    }
    let mut reasons = vec![format!("a policy asks for it ({})", asks.from)];
    let word = |text: String| format!("'{}'", text.replace('\'', "'\\''"));
    let found = classify(&words.into_iter().map(word).collect::<Vec<_>>().join(" "));
    if found.verdict == Verdict::Forbidden {
        let message = format!("A command that no approval lets through: {}", found.reasons.join("; "));
        return Err(Failure::refused("forbidden", message, "Run it outside of Nexus if you must."));
    }
    reasons.extend(found.reasons);
    let requester = args.asking_session.map_or_else(caller, |session| Ok(of_session(session)))?;
    let asked = approvals.request(&subject, requester, reasons, LIFE, now())?;
    let message =
        format!("A policy lets this command start only with an approval ({}); {} waits for one", asks.from, asked.id);
    let hint = format!(
        "nexus approvals approve {} in another terminal lets exactly this run once; then run it again",
        asked.id
    );
    Err(Failure::refused("approval_required", message, hint))
}
