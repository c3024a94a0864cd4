//! What the daemon decides without I/O.

pub mod admit;
pub mod outcome;
pub mod reconcile;
