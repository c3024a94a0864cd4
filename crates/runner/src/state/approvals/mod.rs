//! Approvals on this machine: a file for each, in the state directory, which no sandbox sees.
//!
//! ```text
//!  run that needs one ─▶ take ─ granted, for exactly this run ─▶ the use is on the disk ─▶ the command starts
//!                          └─ none ─▶ request (pending) ─▶ the run is refused, and names it
//!  nexus approvals approve|deny ─▶ answer
//!
//!  connection that no rule allows ─▶ request ─▶ inspect … inspect ─ granted ─▶ take_from ─▶ the connection is made
//!                                                        └─ denied, expired, no answer in time ─▶ withdraw ─▶ it is refused
//! ```
//! Everything happens under one lock, and each change is on the disk before it counts: of two answers and of two uses at
//! the same time one comes first. A crash after a use and before the start costs the use; it never gives one back.
//!
//! The subject of an approval is a hash with a salt of its own over command, directory, environment, rights, files and host. The
//! values of variables are not kept: a hash without a salt of a short one could be guessed.

#[cfg(test)]
mod connection_tests;
mod error;
mod store;
mod subject;

pub use error::ApprovalError;
pub use store::{Approvals, Stored, Terms, now};
pub use subject::Subject;
