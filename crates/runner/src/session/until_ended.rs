//! Waits for the end of a sandbox, or ends it.

use crate::notices::Notify;
use crate::session::link::{ANSWER_WITHIN, Answer, Found, Link, TalkError, broken, is_gone, lost, resume};
use crate::session::store::{Condition, Entry, ExitRecord};
use crate::session::wire::{ClientMessage, ServerMessage};
use nexus_model::exit::SIGNAL_BASE;
use std::io;

/// Waits for the end, and returns the exit code and the text for the user about it.
pub fn until_ended(entry: &Entry, ask: &ClientMessage, tell: Notify<'_>) -> Result<(u8, String), TalkError> {
    let known = |ending: &ExitRecord| (ending.exit, ending.message.clone());
    let mut link = match Link::open(entry, ask, None, tell)? {
        Found::Live(link) => link,
        Found::Interrupted(signal) => return Ok((SIGNAL_BASE.saturating_add(signal), String::new())),
        Found::Over(entry) => match &entry.condition {
            Condition::Ended(ending) => return Ok(known(ending)),
            _ => return Err(lost(&entry)),
        },
    };
    loop {
        match link.next_within(None, ANSWER_WITHIN) {
            Ok(Answer::Message(ServerMessage::Ended { exit, message })) => return Ok((exit, message)),
            Ok(Answer::Message(ServerMessage::Refused { message, .. })) => {
                return Err(broken(entry, io::Error::other(message)));
            }
            // One that was stopped after it was asked cannot end its sandbox either.
            Ok(Answer::Silent) if matches!(ask, ClientMessage::Stop { .. }) => drop(resume(entry, tell)),
            Ok(_) => {}
            // The supervisor may have been too late to tell, and has written it down.
            Err(error) if is_gone(&error) => {
                return match entry.again()?.map(|entry| entry.condition) {
                    Some(Condition::Ended(ending)) => Ok(known(&ending)),
                    _ => Err(lost(entry)),
                };
            }
            Err(error) => return Err(broken(entry, error)),
        }
    }
}
