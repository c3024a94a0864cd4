//! The text and the document about a command that failed.

use crate::failure::Failure;
use crate::terminal::out;
use nexus_model::ExitReason;
use nexus_model::exit::USAGE;
use serde::Serialize;
use std::io::{self, Write};

/// Advises what to do about an error that should not come.
pub const INTERNAL_ADVICE: &str = "this should not happen; run nexus doctor";

#[derive(Serialize)]
struct Refusal<'a> {
    schema: &'static str,
    exit_code: u8,
    /// The reason for which the run ended; `None` for a wrong command line, which starts no run.
    reason: Option<ExitReason>,
    error: &'a Failure,
}

/// Returns the failure of output that could not be written where it should go.
pub fn not_written(what: &str, error: &io::Error) -> Failure {
    let hint = "look at where the output goes: is the disk full?";
    Failure::refused("output", format!("{what} could not be written: {error}"), hint)
}

/// Renders the document of `--json` for a run that did not come about.
pub fn failure_document(failure: &Failure) -> String {
    let refusal = Refusal {
        schema: "nexus.run/1",
        exit_code: failure.exit,
        reason: (failure.exit != USAGE).then_some(ExitReason::DriverFailed),
        error: failure,
    };
    serde_json::to_string(&refusal).unwrap_or_default()
}

/// Prints why there was no run, and returns the exit code.
pub fn print_failure(failure: &Failure, as_json: bool) -> u8 {
    let mut text = failure.to_string();
    text.push('\n');
    // Where even this cannot be written, the exit code still tells.
    let written = out::stderr().write_all(text.as_bytes());
    if as_json {
        let json = failure_document(failure);
        let printed = out::write_unless_closed(&mut out::stdout(), format!("{json}\n").as_bytes());
        if printed.is_err() || written.is_err() {
            return failure.exit;
        }
    }
    failure.exit
}
