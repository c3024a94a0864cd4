//! Finds what stays in a layer and may be the last copy of something that a commit removes.
//!
//! * `autostash`: finds the commits in which git saves uncommitted changes before a merge or a rebase
//! * `copies`: compares contents to find entries that may be the last copy of removed data
//! * `waiting_refs`: records the refs and reflogs that are the only names of commits of the run

pub(crate) mod autostash;
pub(crate) mod copies;
pub(crate) mod waiting_refs;
