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

mod advice;
mod args;
mod exec;
mod logs;
mod over;
mod ps;
mod supervisor;
mod view;

pub use args::SessionCommand;
pub use supervisor::detach;

use crate::failure::Failure;
use crate::run;
use nexus_runner::session::store::{Entry, Store, StoreError};

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
    let store = Store::open(&places, unreadable)?;
    store.clean()?;
    Ok(store)
}

fn find(text: &str) -> Result<(Store, Entry), Failure> {
    let store = Store::open(&crate::host::ready_state_dir()?, unreadable)?;
    let entry = store.find(text)?;
    Ok((store, entry))
}

/// Prints the error of a sandbox that cannot be read; the command goes on with the others.
fn unreadable(error: StoreError) {
    run::print_failure(&error.into(), false);
}
