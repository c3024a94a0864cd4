//! `nexus receipt`: the commands about receipts. The crate `nexus-receipt` makes, stores and checks them.
//!
//! ```text
//!  run ── open_issuer, and the engine issues ─▶ nexus-receipt   receipt verify | show | keys | close | prune   log ─▶ a line for each
//! ```

use crate::answer::print;
use crate::args::{ReceiptAction, ReceiptArgs};
use crate::{breaks, manage, show, verify};

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
