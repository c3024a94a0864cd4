//! `nexus approvals`: lists the requests for approval, and answers them.
//!
//! ```text
//!  run whose policy asks ─▶ obtain ─ granted ─▶ the command starts        (one use less)
//!                              └─ a request, and the run is refused
//!  nexus approvals ls|show ─▶ what is asked for          approve|deny ─▶ on a terminal of another session
//!
//!  connection that no rule allows, with --ask ─▶ a request, and it waits ─ approved ─▶ it is made
//! ```
//!
//! With `--fleet` the same commands are about directives of a control plane and their connections, whose approvals it keeps.
//!
//! Everything that a command chose is shown quoted and escaped, so that nothing on the terminal can have been drawn by it.

pub mod args;
mod ask;
mod fleet;
pub mod obtain;
mod plain;
mod show;

use crate::failure::Failure;
use crate::failures;
use crate::terminal::out;
use args::{AnswerArgs, ApprovalsAction, ApprovalsArgs, Scope};
use ask::{confirmed, refuse_inside};
use nexus_model::approval::{Actor, ApprovalEvent, ApprovalKind, ApprovalState};
use nexus_runner::state::approvals::{ApprovalError, Approvals, now};
use nexus_runner::state::directory::StateDir;
use serde_json::json;
use std::io;

/// Runs it and returns the exit code.
pub fn command(args: &ApprovalsArgs) -> u8 {
    if args.fleet || args.access.server.is_some() {
        return match fleet::command(args) {
            Ok(code) => code,
            Err(failure) => failures::print_failure(&failure, false),
        };
    }
    let result = match &args.action {
        ApprovalsAction::Ls { json, all } => list(*json, *all),
        ApprovalsAction::Show { json, id } => show_one(id, *json),
        ApprovalsAction::Approve(answer) => approve(answer),
        ApprovalsAction::Deny { id } => deny(id),
    };
    let written = result.and_then(|text| {
        let out = out::write_unless_closed(&mut io::stdout(), text.as_bytes());
        out.map_err(|error| failures::not_written("the answer", &error))
    });
    match written {
        Ok(()) => 0,
        Err(failure) => failures::print_failure(&failure, false),
    }
}

fn places() -> Result<StateDir, Failure> {
    Ok(crate::host::state_dir()?.ensure(&crate::host::here())?)
}

/// Returns the caller as one who asks or answers: a session of processes is the credential.
pub fn caller() -> Result<Actor, Failure> {
    let here = crate::host::membership().map_err(|error| {
        Failure::refused("approvals", format!("the session of this process is not known: {error}"), "Try it again.")
    })?;
    // 0, a session of outside this PID namespace, is the same for all that are.
    Ok(of_session(here.session))
}

/// Refuses an answer of a session that is outside of this PID namespace: it has no number here, so that it may well be the one that
/// asked, which made a namespace for the answer.
fn refuse_unknown(by: &Actor) -> Result<(), Failure> {
    if *by == of_session(0) {
        let message = "the session of this process is outside of its PID namespace, and may be the one that asks";
        return Err(Failure::refused("approvals", message, "Answer in a terminal of your own."));
    }
    Ok(())
}

/// Returns the user of this process in a session.
pub fn of_session(session: i32) -> Actor {
    Actor { user: format!("uid {}", rustix::process::geteuid().as_raw()), credential: format!("session {session}") }
}

fn list(as_json: bool, all: bool) -> Result<String, Failure> {
    let mut found = Approvals::open(&places()?)?.list(now())?;
    found.retain(|stored| all || !stored.approval.state.is_over());
    if as_json {
        let rows: Vec<_> = found.iter().map(show::json).collect();
        return Ok(format!("{:#}\n", json!({"schema": "nexus.approvals/1", "approvals": rows})));
    }
    if found.is_empty() {
        return Ok("no approval waits\n".to_owned());
    }
    Ok(found.iter().map(show::line).collect())
}

fn show_one(id: &str, as_json: bool) -> Result<String, Failure> {
    let stored = Approvals::open(&places()?)?.find(id, now())?;
    Ok(if as_json { format!("{:#}\n", show::json(&stored)) } else { show::text(&stored) })
}

fn approve(args: &AnswerArgs) -> Result<String, Failure> {
    if args.scope == Some(Scope::Directive) {
        let message = "there is no directive on this machine whose connections could be approved";
        return Err(Failure::usage("scope", message, "add --fleet, or say how many connections with --uses"));
    }
    let places = places()?;
    refuse_inside()?;
    // The lock is not held while a person reads: the answer is to what was shown, and its id says to which.
    let stored = Approvals::open(&places)?.find(&args.id, now())?;
    let by = caller()?;
    let expires_at = args.within.map(|ms| now().saturating_add(ms));
    let is_connection = stored.approval.kind == ApprovalKind::Egress;
    // The request is for as many as there can be, and the answer is about one unless it says more.
    let max_uses = args.uses.or(is_connection.then_some(1));
    let event = ApprovalEvent::Approve { by: by.clone(), max_uses, expires_at };
    // What cannot be is said before anybody reads.
    stored.approval.step(&event, now()).map_err(ApprovalError::from)?;
    refuse_unknown(&by)?;
    if !confirmed(&show::text(&stored))? {
        return Err(Failure::refused("approvals", "nothing was approved", "nexus approvals deny refuses it for good"));
    }
    let stored = Approvals::open(&places)?.answer(stored.id, &event, now())?;
    let uses = match stored.approval.uses_left() {
        1 => "once".to_owned(),
        more => format!("{more} times"),
    };
    let state = match stored.approval.state {
        ApprovalState::Granted if is_connection => {
            format!("granted: {uses} this destination, for this run, until {}", show::time(&stored))
        }
        ApprovalState::Granted => format!("granted: exactly this may run {uses}, until {}", show::time(&stored)),
        other => other.name().to_owned(),
    };
    Ok(format!("{} is {state}\n", stored.id))
}

fn deny(id: &str) -> Result<String, Failure> {
    let approvals = Approvals::open(&places()?)?;
    refuse_inside()?;
    let stored = approvals.find(id, now())?;
    let by = caller()?;
    refuse_unknown(&by)?;
    let stored = approvals.answer(stored.id, &ApprovalEvent::Deny { by }, now())?;
    Ok(format!("{} is {}\n", stored.id, stored.approval.state.name()))
}
