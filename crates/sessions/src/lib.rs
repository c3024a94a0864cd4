//! Detached sandboxes: `nexus run --detach`, and the commands about them.
//!
//! ```text
//!  nexus run --detach ─exec─▶ supervisor ──▶ sandbox    the supervisor is the `nexus run` of this sandbox: it owns
//!        ◀── started, or why not ──┘ │ ring, socket     the record, the layer and the sandbox, and settles the changes
//!  attach, exec, logs, stop, wait ───┘
//!  ps, rm ─▶ the directory on disk (store)
//! ```
//! A supervisor that ends takes everything inside along, whatever ended it; what it kept of changes is recovered by the
//! next command, as after any run that was killed.

#![forbid(unsafe_code)]

pub mod args;
mod exec;
pub mod find;
mod lifecycle;
mod logs;
mod ps;
mod view;

use args::SessionCommand;
use nexus_caller::{environment, failure, failures, host, notices, policies, profiles, recovery, signals, terminal};

/// Runs one of the commands and returns the exit code.
pub fn command(command: SessionCommand) -> u8 {
    let done = match command {
        SessionCommand::Ps(args) => ps::command(&args),
        SessionCommand::Attach(args) => exec::attach(args),
        SessionCommand::Exec(args) => exec::exec(&args),
        SessionCommand::Logs(args) => logs::command(&args),
        SessionCommand::Stop(args) => lifecycle::stop(&args),
        SessionCommand::Wait { session } => lifecycle::wait(&session),
        SessionCommand::Rm(args) => lifecycle::rm(&args),
    };
    done.unwrap_or_else(|failure| failures::print_failure(&failure, false))
}
