//! The directories that a commit works in, and the processes that have a file there open.
//!
//! * `commit_places`: the directories that the steps of a commit work in, and those of the stages around the steps
//! * `quiet`: finds out whether an entry that a commit moves out changed, or is open for writing
//! * `side`: the side name of an entry while an exchange is made of three renames
//! * `writers`: compares and lists files that processes have open

pub(crate) mod commit_places;
pub(crate) mod quiet;
pub(crate) mod side;
pub(crate) mod writers;
