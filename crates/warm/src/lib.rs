//! `nexus warm`: a launcher process that starts the sandboxes of later runs.
//!
//! ```text
//!  nexus warm ──/proc/self/exe __warm-door──▶ its own session, in / ──▶ door ──__warm-serve──▶ launcher process
//!      └─ waits for its first line: ready, taken, or why not
//!  nexus run ─▶ launcher.rs ─▶ WarmDriver        (crates/drivers/namespace/src/warm)
//! ```

#![forbid(unsafe_code)]

pub mod args;
mod door;
pub mod launcher;
mod manage;
mod start;

use args::WarmCommand;
use nexus_caller::{driver, failure, failures, host, print, profiles, signals};

/// Runs it and returns the exit code.
pub fn command(command: &WarmCommand) -> u8 {
    let (done, as_json) = match command {
        WarmCommand::Warm(args) if args.stop => (manage::stop(args), args.json),
        WarmCommand::Warm(args) if args.status => (manage::status(args), args.json),
        WarmCommand::Warm(args) => (start::command(args), args.json),
        WarmCommand::Listen(args) => (door::command(args), false),
        WarmCommand::Serve(args) => (door::serve(args), false),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failures::print_failure(&failure, as_json),
    }
}
