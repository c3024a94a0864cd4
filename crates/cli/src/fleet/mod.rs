//! A fleet: its control plane and its daemon as processes, and the commands of its users.
//!
//! ```text
//!  nexus up ─┬─ launcher process (__launch), before any thread
//!            ├─ control plane (nexus_mothership), SQLite, loopback
//!            └─ daemon (nexusd) ─▶ the same engine as nexus run
//!  mothership serve, daemon run: the two apart        territory join: enrols this machine
//!  login, territory, facility, directive: over HTTP with an API key
//! ```

mod access;
mod args;
mod directive;
mod display;
mod enroll;
mod facility;
mod follow;
mod launcher;
mod login;
mod serve;
mod services;
mod territory;
mod up;
mod upkeep;

pub use args::FleetCommand;

use crate::failure::Failure;
use crate::run;

/// Runs it and returns the exit code.
pub fn command(command: &FleetCommand) -> u8 {
    let (done, as_json) = match command {
        FleetCommand::Up(args) => (up::command(args), args.json),
        FleetCommand::Mothership(args) => (serve::mothership(args), false),
        FleetCommand::Daemon(args) => (serve::daemon(args), false),
        FleetCommand::Launch(args) => (launcher::command(args), false),
        FleetCommand::Login(args) => (login::command(args), false),
        FleetCommand::Territory(args) => (territory::command(args), args.json),
        FleetCommand::Facility(args) => (facility::command(args), args.json),
        FleetCommand::Directive(args) => (directive::command(args), args.json),
    };
    match done {
        Ok(code) => code,
        Err(failure) => run::print_failure(&failure, as_json),
    }
}

/// Prints the answer of a command.
fn print(text: &[u8]) -> Result<u8, Failure> {
    match run::write_unless_closed(&mut crate::terminal::out::stdout(), text) {
        Ok(()) => Ok(0),
        Err(error) => Err(run::not_written("the answer", &error)),
    }
}

/// Prints a document on one line.
fn print_json(document: &impl serde::Serialize) -> Result<u8, Failure> {
    let text = serde_json::to_string(document).map_err(|error| {
        Failure::refused("internal", format!("the answer cannot be written: {error}"), run::INTERNAL_ADVICE)
    })?;
    print(format!("{text}\n").as_bytes())
}
