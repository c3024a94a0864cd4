//! The decisions of the daemon, without I/O.

pub mod admit;
pub mod allowed;
pub mod outcome;
pub mod piece;
pub mod reconcile;
