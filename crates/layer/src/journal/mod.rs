//! The journal of a commit: its decision as data, and the file that keeps it.
//!
//! * `dir_attrs`: compares the attributes of a directory with what a step means to change, and sets them
//! * `dir_times`: the time that a directory of the workspace has after steps acted in it
//! * `directory_content`: a digest of the entries in a directory that a commit moves as a whole
//! * `file`: the file with the decision to commit, written before the workspace changes
//! * `journals`: finds the journals of a workspace
//! * `kept_entry`: an entry that stays in the layer when a commit removes the rest
//! * `seen`: the identity of an entry when the commit was planned
//! * `step`: one step of a commit, as its plan makes it and its journal keeps it
//! * `step_reader`: reads the steps of a journal one by one: those of a large commit stay in the file
//! * `units`: groups of paths that a commit applies completely or not at all

pub(crate) mod dir_attrs;
pub(crate) mod dir_times;
pub mod directory_content;
pub mod file;
pub(crate) mod journals;
pub mod kept_entry;
pub mod seen;
pub mod step;
pub(crate) mod step_reader;
pub(crate) mod units;
