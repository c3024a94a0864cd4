//! Sockets, FIFOs and lock files: entries at which a program of the host would wait or fail.
//!
//! * `endpoints`: holds back sockets and named pipes of the workspace that go or move with a directory
//! * `in_the_way`: holds back FIFOs at names that programs open unasked, and lock files of git

pub(crate) mod endpoints;
pub(crate) mod in_the_way;
