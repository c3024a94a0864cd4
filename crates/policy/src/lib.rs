//! Decisions about what a run may do, made without I/O.
//!
//! * [`net`]: which destinations a sandbox may reach.
//! * [`profile`]: named sets of permissions, how they combine, and what a workspace may narrow.

#![forbid(unsafe_code)]

pub mod net;
pub mod profile;
pub mod settings;
