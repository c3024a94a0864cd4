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

mod answer;
mod args;
mod client;
mod command;
mod ending;
mod exec;
mod hub;
mod link;
mod logs;
mod name;
mod outside;
mod over;
mod process;
mod ps;
mod store;
mod supervisor;
mod view;
mod wire;

pub use args::SessionCommand;
pub use name::Name;
pub use supervisor::detach;

use crate::failure::Failure;
use crate::run;
use store::{Entry, Store};

/// Runs one of the commands and returns the exit code.
pub fn command(command: SessionCommand) -> u8 {
    let done = match command {
        SessionCommand::Supervise(args) => return supervisor::supervise(*args),
        SessionCommand::Ps(args) => ps::command(&args),
        SessionCommand::Attach(args) => exec::attach(args),
        SessionCommand::Exec(args) => exec::exec(&args),
        SessionCommand::Logs(args) => logs::command(&args),
        SessionCommand::Stop(args) => over::stop(&args),
        SessionCommand::Wait { session } => over::wait(&session),
        SessionCommand::Rm(args) => over::rm(&args),
    };
    done.unwrap_or_else(|failure| run::print_failure(&failure, false))
}

/// Opens the store, after whatever was killed has been cleared up.
fn store() -> Result<Store, Failure> {
    let places = crate::host::ready_state_dir()?;
    crate::recovery::look(&places)?;
    let store = Store::open(&places)?;
    store.clean()?;
    Ok(store)
}

fn find(text: &str) -> Result<(Store, Entry), Failure> {
    let store = Store::open(&crate::host::ready_state_dir()?)?;
    let entry = store.find(text)?;
    Ok((store, entry))
}

/// Describes a sandbox whose supervisor was killed; how its command ended is unknown.
fn lost(entry: &Entry) -> Failure {
    let message = format!("the supervisor of the sandbox {} was killed, and everything inside with it", entry.about.id);
    Failure::refused("lost", message, format!("nexus rm {} clears up", entry.about.id))
}
