//! Single entries on the disk: attributes, copies, removal, and time stamps. Nothing here knows what a commit is.
//!
//! * `copy`: copies single entries between directory descriptors
//! * `copy_trees`: copies whole trees of a layer
//! * `going`: removes large layers in parts, over several commands
//! * `identity`: names the workspace of a commit
//! * `opened`: records the original modes of entries that a copy has to make readable
//! * `remove`: removes a tree below a directory descriptor
//! * `started`: the start of a run, by the clock of the workspace's file system
//! * `state_file`: opens and reads the files of the state directory, which may be damaged or replaced
//! * `sync`: syncs a tree to disk
//! * `top_directory`: the attributes of the workspace's own directory
//! * `upper`: opens the upper directory of a layer, even if the run removed its permission bits
//! * `xattr`: extended attributes of entries that need not be openable

pub(crate) mod copy;
pub(crate) mod copy_trees;
pub mod going;
pub(crate) mod identity;
pub(crate) mod opened;
pub(crate) mod remove;
pub mod started;
pub mod state_file;
pub(crate) mod sync;
pub mod top_directory;
pub(crate) mod upper;
pub(crate) mod xattr;
