//! Access to trees of files that a hostile process wrote: below a directory descriptor, over no link, on one mount.
//!
//! ```text
//!  tree     the descriptor of a tree, the calls that open and list what is below it, and the paths of its entries
//!  meta     the attributes of an entry, read without following a link
//!  fold     the form in which two names count as the same file, whatever the file system folds
//!  writers  whether a process has a file open for writing
//! ```
//! `nexus-layer` reads and commits change layers through it, `nexus-git` reads repositories.

#![forbid(unsafe_code)]

pub mod fold;
mod identity;
pub mod meta;
mod tree;
pub mod writers;

pub use identity::DirectoryIdentity;
pub use tree::{
    Doing, IoFailure, LeaseCall, MAX_NAMED, Noting, Workspace, check_depth, check_named, chmod, directory_names,
    is_beneath, is_empty, is_gone, is_no_way, is_other_mount, join, may_enter, names, open_dir, open_file, pin,
    proc_path, split, unlink_if_there, widen,
};
