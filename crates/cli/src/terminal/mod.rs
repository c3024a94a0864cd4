//! The caller's terminal: what may be shown on it, how it is used in raw mode, and how it is put back.
//!
//! ```text
//!  bytes of a sandbox ─▶ filter (allow) ─▶ terminal            keys ─▶ raw ─▶ detach keys? ─▶ the sandbox's own terminal
//!                          └─ left: what was switched ─▶ put back at the end
//! ```
//! A sandbox never holds the caller's terminal; it has one of its own. But what it prints is shown, and a terminal
//! obeys what it is shown (CVE-2021-25743): it can be told to type its title, to fill the clipboard, or to print.

mod allow;
pub mod filter;
mod hold;
pub mod keys;
mod left;
mod nowait;
pub mod out;
pub mod raw;
#[cfg(test)]
mod seeds;

pub use filter::{Filter, Mode};
pub use hold::{Hold, Taken};
