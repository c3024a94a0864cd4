//! What this machine knows of past runs: `nexus receipt` and `nexus log`. Making, storing and checking receipts is
//! `nexus-receipt`.
//!
//! ```text
//!  receipts: verify | show | keys | close | prune ─┐
//!  log: a line for each past run ──────────────────┴─▶ local: the store and the keys of this machine
//! ```

#![forbid(unsafe_code)]

mod answer;
pub mod args;
mod breaks;
mod local;
pub mod log;
mod manage;
pub mod receipts;
mod show;
mod verify;

use nexus_caller::{advice, failure, failures, host, terminal, utc};
