//! `nexus receipt`: what people ask of receipts. Making, storing and checking them is `nexus-receipt`.
//!
//! ```text
//!  run ── open_issuer, and the engine issues ─▶ nexus-receipt   receipt verify | show | keys | close | prune   log ─▶ a line for each
//! ```

mod advice;
mod breaks;
mod manage;
mod show;
mod utc;
mod verify;

pub use advice::open_issuer;
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
