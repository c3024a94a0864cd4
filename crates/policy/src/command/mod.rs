//! Classification of a command line of the classes `trusted` and `host` : safe, to be approved, or forbidden.
//!
//! ```text
//!  text ─parse─▶ Line (pipelines, words, redirections, substitutions; what is not known is marked)
//!                  ├─ forbidden: somewhere in it, also behind wrappers, in substitutions and in strings for a shell
//!                  ├─ safe: one plain command of a list, with known options, on paths below the working directory
//!                  └─ everything else needs an approval
//! ```
//!
//! It serves to ask people. It is never a boundary: a program does what it wants, whatever its command line says. So it
//! errs to one side alone: a construct that is not known is never safe.

mod classify;
mod devices;
mod expansion;
mod forbidden;
mod line;
mod network;
mod parse;
mod plain;
mod programs;
mod safe;

pub use classify::{Classification, Verdict, classify};
pub use plain::{Commands, plain_words};
