//! `nexus stop`, `nexus wait` and `nexus rm`.

use super::args::{RmArgs, StopArgs};
use super::exec::tell;
use super::link::{ANSWER_WITHIN, Answer, Found, Link, broken, is_gone, resume};
use super::store::{Condition, Entry, ExitRecord};
use super::wire::{Ask, Tell};
use super::{find, lost, store};
use crate::failure::Failure;
use crate::run::{not_written, print_failure, write_unless_closed};
use nexus_model::exit::SIGNAL_BASE;
use nexus_runner::live::signal::{SIGKILL, SIGTERM};
use std::io;

/// Ends sandboxes and prints which.
pub fn stop(args: &StopArgs) -> Result<u8, Failure> {
    each(&args.sessions, |text| {
        let (_, entry) = find(text)?;
        until_ended(&entry, &Ask::Stop { signal: SIGTERM, grace_ms: args.grace }).map(drop)
    })
}

/// Waits for the end, prints the exit code and returns it.
pub fn wait(text: &str) -> Result<u8, Failure> {
    let (_, entry) = find(text)?;
    let ended = until_ended(&entry, &Ask::Wait)?;
    tell(&ended.1);
    print(&ended.0.to_string())?;
    Ok(ended.0)
}

/// Removes what is kept.
pub fn rm(args: &RmArgs) -> Result<u8, Failure> {
    // What a supervisor that was killed left is cleared up here, too.
    let store = store()?;
    each(&args.sessions, |text| {
        let mut entry = store.find(text)?;
        if entry.condition.is_live() {
            if !args.force {
                let message = format!("the sandbox {text} still runs");
                return Err(Failure::refused(
                    "running",
                    message,
                    format!("nexus stop {text} first, or use nexus rm -f"),
                ));
            }
            match until_ended(&entry, &Ask::Stop { signal: SIGKILL, grace_ms: Some(0) }) {
                Ok(_) => {}
                Err(failure) if matches!(failure.code, "lost" | "no_session") => {}
                Err(failure) => return Err(failure),
            }
            match entry.again()? {
                Some(now) => entry = now,
                None => return Ok(()),
            }
        }
        store.remove(&entry)
    })
}

/// Does the same to each session; a failure is reported, and the others are done all the same.
fn each(sessions: &[String], mut one: impl FnMut(&str) -> Result<(), Failure>) -> Result<u8, Failure> {
    let mut code = 0;
    for text in sessions {
        match one(text) {
            Ok(()) => print(text)?,
            Err(failure) => code = print_failure(&failure, false),
        }
    }
    Ok(code)
}

fn print(text: &str) -> Result<(), Failure> {
    write_unless_closed(&mut io::stdout(), format!("{text}\n").as_bytes())
        .map_err(|error| not_written("the answer", &error))
}

/// Waits for the end, and returns the exit code and what there is to say about it.
fn until_ended(entry: &Entry, ask: &Ask) -> Result<(u8, String), Failure> {
    let known = |ending: &ExitRecord| (ending.exit, ending.message.clone());
    let mut link = match Link::open(entry, ask, None)? {
        Found::Live(link) => link,
        Found::Interrupted(signal) => return Ok((SIGNAL_BASE.saturating_add(signal), String::new())),
        Found::Over(entry) => match &entry.condition {
            Condition::Ended(ending) => return Ok(known(ending)),
            _ => return Err(lost(&entry)),
        },
    };
    loop {
        match link.next_within(None, ANSWER_WITHIN) {
            Ok(Answer::Message(Tell::Ended { exit, message })) => return Ok((exit, message)),
            Ok(Answer::Message(Tell::Refused { message, .. })) => {
                return Err(broken(entry, &io::Error::other(message)));
            }
            // One that was stopped after it was asked cannot end its sandbox either.
            Ok(Answer::Silent) if matches!(ask, Ask::Stop { .. }) => drop(resume(entry)),
            Ok(_) => {}
            // It may have been too late to tell us, and has written it down.
            Err(error) if is_gone(&error) => {
                return match entry.again()?.map(|entry| entry.condition) {
                    Some(Condition::Ended(ending)) => Ok(known(&ending)),
                    _ => Err(lost(entry)),
                };
            }
            Err(error) => return Err(broken(entry, &error)),
        }
    }
}
