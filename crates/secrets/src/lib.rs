//! Secrets of a run: from the provider that has the value to the output in which the value must not appear.
//!
//! ```text
//!  NAME=provider:reference ──parse──▶ Request ──fetch (file, env, cmd)──▶ SecretValue ─┬─▶ the sandbox, as a file in memory
//!                                                                                     └─▶ Redaction ─▶ Redactor of each stream
//! ```
//! A [`SecretValue`] is wiped when it is dropped, and no message, error or `Debug` shows it. The modules `reference` and
//! `redact` are pure; `file` and `command` read files and start programs.

#![forbid(unsafe_code)]

mod command;
mod fetch;
mod file;
mod redact;
mod reference;
mod source;
mod value;

pub use fetch::{FetchError, Fetched, fetch};
pub use redact::{Redaction, Redactor};
pub use reference::{ParseError, Reference, Request};
pub use source::{Source, Warning};
pub use value::{MAX_BYTES, MIN_BYTES, SecretValue};

/// Maximum number of secrets of one run.
pub const MAX_SECRETS: usize = 32;
