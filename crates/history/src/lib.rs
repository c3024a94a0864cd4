//! Commands that read the records of past runs on this machine: `nexus receipt`, `nexus log` and `nexus net log`. The crate
//! `nexus-receipt` makes, stores and checks receipts.
//!
//! ```text
//!  receipts: verify | show | keys | close | prune ─┐
//!  log: a line for each past run ──────────────────┴─▶ local: the store and the keys of this machine
//!  net: what a run tried to reach ─▶ its record in the state directory
//! ```

#![forbid(unsafe_code)]

mod answer;
pub mod args;
mod breaks;
mod local;
pub mod log;
mod manage;
pub mod net;
pub mod receipts;
mod show;
mod verify;

pub use local::local;
pub use show::command_line;

use nexus_caller::{advice, failure, failures, host, terminal, utc};
