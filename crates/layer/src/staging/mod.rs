//! The staging directory of a commit: filled before the decision, checked before it is removed.
//!
//! * `stage`: makes what a commit needs next to the workspace's entries, before the commit is decided
//! * `sweep`: the last check before a staging directory is removed

pub(crate) mod stage;
pub(crate) mod sweep;
