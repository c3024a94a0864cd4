//! The caller's terminal: how it is used in raw mode, how it is written to, and how it is put back.
//!
//! ```text
//!  bytes of a sandbox ─▶ nexus-terminal: filter ─▶ out ─▶ terminal
//!  keys ─▶ raw ─▶ detach keys? ─▶ the sandbox's own terminal
//! ```
//! A sandbox never holds the caller's terminal; it has one of its own. But its output is shown, and a terminal obeys
//! the bytes that it shows: so they pass the filter of `nexus-terminal` first.

mod hold;
pub mod keys;
mod nowait;
pub mod out;
pub mod raw;
pub mod sink;

pub use hold::{Hold, Taken};
