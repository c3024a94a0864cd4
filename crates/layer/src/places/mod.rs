//! The directories that a commit works in, and the processes that have a file there open.
//!
//! * `directories`: the directories that the last stage of a commit works in
//! * `quiet`: finds out whether an entry that a commit moves out changed, or is open for writing
//! * `rooms`: the directory descriptors that a commit works with
//! * `side`: the side name of an entry while an exchange is made of three renames
//! * `writers`: finds out whether a process has a file open for writing, by a read lease (fcntl(2), `F_SETLEASE`)

pub(crate) mod directories;
pub(crate) mod quiet;
pub(crate) mod rooms;
pub(crate) mod side;
pub(crate) mod writers;
