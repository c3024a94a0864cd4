//! The interface between the engine and the process and user that call `nexus`: reads their environment, settings and signals, and
//! prints messages to them.
//!
//! ```text
//!  variables, home, session ─▶ host ─▶ the engine ─▶ typed error ─▶ advice ─▶ Failure ─▶ one line on standard error
//!  files of the user ─▶ profiles            └─▶ notices ──────────────────────────────▶ one line on standard error
//!  signals ─▶ a flag and a wake-up          output of a sandbox ─▶ terminal ──────────▶ the caller's terminal
//! ```
//! * `failure` is the one form of an error that a person sees; `advice` and `used_up` say what to do; `failures` prints it, and
//!   `print` the answer of a command that succeeded.
//! * `driver` and `recovery` are the driver of this machine as each command uses it.
//!
//! The crates of the commands build on this one, and none of them needs another for it.

#![forbid(unsafe_code)]

pub mod advice;
pub mod driver;
pub mod environment;
pub mod failure;
pub mod failures;
pub mod host;
pub mod notices;
pub mod policies;
pub mod print;
pub mod profiles;
pub mod recovery;
pub mod signals;
pub mod terminal;
pub mod used_up;
pub mod utc;
