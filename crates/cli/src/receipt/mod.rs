//! Receipts: signed statements of what runs were and did.
//!
//! ```text
//!  run ── Issuer::open … issue ─▶ keys/receipt.key signs ─▶ receipts/RUN.json, linked to the one before
//!  receipt verify | show | keys | prune      log ─▶ a line for each
//! ```

mod breaks;
pub mod files;
mod issue;
mod keys;
mod manage;
mod show;
mod store;
mod utc;
mod verify;

pub use issue::{Finished, Issued, Issuer, issue};
pub use show::{changes_in_short, command_line};
pub use utc::utc;
pub use verify::local;

use crate::args::{ReceiptAction, ReceiptArgs};
use crate::failure::Failure;
use crate::run;

/// Runs it and returns the exit code.
pub fn command(args: &ReceiptArgs) -> u8 {
    let result = match &args.action {
        ReceiptAction::Verify(args) => return verify::command(args),
        ReceiptAction::Show(args) => show::command(args),
        ReceiptAction::Keys(args) => manage::keys(args),
        ReceiptAction::Close(args) => breaks::close(args),
        ReceiptAction::Prune(args) => manage::prune(args),
    };
    print(result)
}

/// Prints the answer, or why there is none.
pub fn print(result: Result<String, Failure>) -> u8 {
    match result {
        Ok(text) => match run::write_unless_closed(&mut std::io::stdout(), text.as_bytes()) {
            Ok(()) => 0,
            Err(error) => run::print_failure(&run::not_written("the answer", &error), false),
        },
        Err(failure) => run::print_failure(&failure, false),
    }
}
