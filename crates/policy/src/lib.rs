//! Decisions about what a run may do, made without I/O.
//!
//! * [`command`]: whether a command line is safe, for asking people.
//! * [`document`]: policy documents at four levels, and what holds of them together.
//! * [`import`]: rules of other programs as a policy document.
//! * [`net`]: which destinations a sandbox may reach.
//! * [`profile`]: named sets of permissions, how they combine, and what a workspace may narrow.

#![forbid(unsafe_code)]

pub mod command;
pub mod document;
pub mod import;
pub mod net;
pub mod profile;
pub mod settings;
