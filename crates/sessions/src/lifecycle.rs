//! `nexus stop`, `nexus wait` and `nexus rm`.

use super::args::{RmArgs, StopArgs};
use super::exec::tell;
use super::find::{find, store};
use crate::failure::Failure;
use crate::failures::not_written;
use crate::failures::print_failure;
use crate::notices::print as print_notice;
use crate::terminal::out::write_unless_closed;
use nexus_runner::live::signal::{SIGKILL, SIGTERM};
use nexus_runner::session::link::TalkError;
use nexus_runner::session::until_ended::until_ended;
use nexus_runner::session::wire::ClientMessage;
use std::io;

/// Ends sandboxes and prints which.
pub fn stop(args: &StopArgs) -> Result<u8, Failure> {
    each(&args.sessions, |text| {
        let (_, entry) = find(text)?;
        until_ended(&entry, &ClientMessage::Stop { signal: SIGTERM, grace_ms: args.grace }, &print_notice)?;
        Ok(())
    })
}

/// Waits for the end, prints the exit code and returns it.
pub fn wait(text: &str) -> Result<u8, Failure> {
    let (_, entry) = find(text)?;
    let ended = until_ended(&entry, &ClientMessage::Wait, &print_notice)?;
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
            match until_ended(&entry, &ClientMessage::Stop { signal: SIGKILL, grace_ms: Some(0) }, &print_notice) {
                Ok(_) | Err(TalkError::Lost { .. } | TalkError::Removed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            match entry.again()? {
                Some(now) => entry = now,
                None => return Ok(()),
            }
        }
        Ok(store.remove(&entry)?)
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
