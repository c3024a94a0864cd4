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

#![forbid(unsafe_code)]

pub mod access;
pub mod args;
mod artifacts;
mod audit;
mod bucket;
mod call;
mod credentials;
mod data_dir;
mod database;
mod directive;
mod display;
mod enroll;
mod facility;
mod follow;
mod launcher;
mod local;
mod login;
pub mod past_runs;
mod progress;
mod renew;
mod serve;
mod services;
mod snapshots;
mod territory;
mod tls_files;
mod up;
mod upkeep;
mod watch;

use args::FleetCommand;
use nexus_caller::{driver, failure, failures, notices, print, profiles, recovery, signals, terminal, used_up};

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
        FleetCommand::Audit(args) => (audit::command(args), args.json),
        FleetCommand::Directive(args) => (directive::command(args), args.json),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failures::print_failure(&failure, as_json),
    }
}
