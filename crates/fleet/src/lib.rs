//! A fleet: its control plane and its daemon as processes, and the commands of its users.
//!
//! ```text
//!  nexus up ─┬─ launcher process (__launch), before any thread
//!            ├─ control plane (nexus_mothership), SQLite, loopback
//!            └─ daemon (nexusd) ─▶ the same engine as nexus run
//!  mothership serve, daemon run: the two apart        territory join: enrols this machine
//!  login, territory, facility, directive, audit: over HTTP with an API key
//!  facility snapshot|restore|fork …: the facilities of nexus run on this machine, without a control plane
//! ```
//! Three directories, each of which uses those before it: `client` (the commands of users), `territory` (the machine of a
//! territory) and `server` (the processes). [`args`] is the command line of all three.

#![forbid(unsafe_code)]

pub mod args;
pub mod client;
mod data_dir;
mod server;
mod territory;

use args::FleetCommand;
use nexus_caller::{driver, failure, failures, notices, print, profiles, recovery, signals, terminal, used_up};

/// Runs it and returns the exit code.
pub fn command(command: &FleetCommand) -> u8 {
    let (done, as_json) = match command {
        FleetCommand::Up(args) => (server::up::command(args), args.json),
        FleetCommand::Mothership(args) => (server::serve::mothership(args), false),
        FleetCommand::Daemon(args) => (server::serve::daemon(args), false),
        FleetCommand::Launch(args) => (territory::launcher::command(args), false),
        FleetCommand::Login(args) => (client::login::command(args), false),
        FleetCommand::Territory(args) => (territory::commands::command(args), args.json),
        FleetCommand::Facility(args) => (client::facility::command(args), args.json),
        FleetCommand::Audit(args) => (client::audit::command(args), args.json),
        FleetCommand::Directive(args) => (client::directive::command(args), args.json),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failures::print_failure(&failure, as_json),
    }
}
