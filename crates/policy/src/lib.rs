//! What may happen, decided without I/O.
//!
//! * [`net`]: which destinations a sandbox may reach.
//! * [`profile`]: named sets of permissions, how they combine, and what a workspace may narrow.
//! * [`receipt`]: the signed statement of what a run was and did.

#![forbid(unsafe_code)]

pub mod net;
pub mod profile;
pub mod receipt;
pub mod settings;
