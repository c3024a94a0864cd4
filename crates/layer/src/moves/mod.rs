//! The calls that move entries, and the names for entries that cannot stay in their places. Nothing here reads a
//! journal.
//!
//! * `beside`: names beside a path for a version that cannot stay in its place
//! * `leftover`: sets aside what a commit or a reject cannot remove
//! * `movable`: prepares an entry for a rename
//! * `rename_calls`: the calls by which a commit moves entries

pub mod beside;
pub mod leftover;
pub(crate) mod movable;
pub(crate) mod rename_calls;
