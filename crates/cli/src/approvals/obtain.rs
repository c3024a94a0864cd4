//! The approval of a run whose policy asks for one.

use super::{caller, of_session, plain};
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::run::input::Input;
use nexus_model::ByteText;
use nexus_model::approval::Actor;
use nexus_policy::command::{Commands, Verdict, classify};
use nexus_policy::document::{Answer, Effective, RunRights};
use nexus_runner::live::full_output::FilePlace;
use nexus_runner::plan::resolve::ResolvedRun;
use nexus_runner::state::approvals::{Approvals, Subject, Terms, now};
use serde_json::json;
use std::time::Duration;

/// The places of the files that the flags of a run ask for.
#[derive(Default)]
pub struct AskedFiles {
    /// That of `--full-output`.
    pub full_output: Option<FilePlace>,
    /// That of `--receipt`.
    pub receipt: Option<FilePlace>,
}

/// Time within which a request is answered and used.
const LIFE: Duration = Duration::from_secs(3600);

/// Returns the session that asks for a run, and that does not answer.
pub fn requester(args: &RunArgs) -> Result<Actor, Failure> {
    args.asking_session.map_or_else(caller, |session| Ok(of_session(session)))
}

/// Takes a use of an approval for exactly this run, right before it starts, or asks for one and refuses the run. Without a
/// policy that asks for approvals nothing happens. `files` are the files that the flags ask for.
pub fn obtain(
    policies: &Effective,
    run: &ResolvedRun,
    input: Input,
    args: &RunArgs,
    files: &AskedFiles,
) -> Result<(), Failure> {
    let words: Vec<String> = run.plan.argv.iter().map(|word| word.as_path().display().to_string()).collect();
    let commands = Commands::of_words(&words);
    let rights = plain::rights(args, &run.plan);
    let Some(asks) = policies.exec_answer(&commands, rights) else { return Ok(()) };
    match asks.value {
        Answer::Skip => return Ok(()),
        Answer::NeedsApproval => {}
        Answer::Forbidden => {
            let message = format!("A policy forbids this command ({})", asks.from);
            return Err(Failure::refused("policy", message, "nexus policy explain shows the rules about commands."));
        }
    }
    if let Some(users) = policies.quorum().filter(|users| users.value > 1) {
        // All of this state directory is one user's.
        let message =
            format!("A policy wants an approval by {} users ({}), and this machine knows one", users.value, users.from);
        return Err(Failure::refused("quorum", message, "A directive of a fleet can have as many."));
    }
    let input = match input {
        Input::Empty | Input::NotPassed => "empty",
        // What comes that way is not known before it is read, so it cannot be part of what is approved.
        Input::AsRead | Input::Ahead => "passed on, whatever it is",
    };
    let publish: Vec<String> = args.publish.iter().map(|publish| format!("{publish:?}")).collect();
    // As they were found: a text would mean another file in another directory, and through a link that was put there.
    let file = |place: &Option<FilePlace>| place.as_ref().map(|place| ByteText::from(place.path()));
    let around = json!({
        "input": input, "publish": publish, "terminal": args.tty, "raw": args.raw, "detached": args.detach,
        "full_output": file(&files.full_output), "receipt": file(&files.receipt),
        "require": args.require.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let subject = Subject::of_command(run, &around)?;
    let approvals = Approvals::open(&run.site.places)?;
    if approvals.take(&subject, &run.plan.run_id.to_string(), now())?.is_some() {
        return Ok(());
    }
    let mut reasons = vec![format!("a policy asks for it ({})", asks.from)];
    let mut because = String::new();
    let skips = || policies.exec_answer(&commands, RunRights::Plain).filter(|answer| answer.value == Answer::Skip);
    if rights == RunRights::Other
        && let Some(skip) = skips()
    {
        because = format!(
            " (the rule {} lets it start without one where no flag gives more and the program is one of the system)",
            skip.from
        );
        reasons.push("it asks for more than a plain run, or the program is not one of the system".to_owned());
    }
    let word = |text: String| format!("'{}'", text.replace('\'', "'\\''"));
    let found = classify(&words.into_iter().map(word).collect::<Vec<_>>().join(" "));
    if found.verdict == Verdict::Forbidden {
        let message = format!("A command that no approval lets through: {}", found.reasons.join("; "));
        return Err(Failure::refused("forbidden", message, "Run it outside of Nexus if you must."));
    }
    reasons.extend(found.reasons);
    let requester = requester(args)?;
    let asked = approvals.request(&subject, requester, reasons, Terms::once(LIFE), now())?;
    let message = format!(
        "A policy lets this command start only with an approval ({}); {} waits for one{because}",
        asks.from, asked.id
    );
    let hint = format!(
        "nexus approvals approve {} in another terminal lets exactly this run once; then run it again",
        asked.id
    );
    Err(Failure::refused("approval_required", message, hint))
}
