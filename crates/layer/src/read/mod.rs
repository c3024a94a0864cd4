//! Reads a layer and the places of the workspace that it covers.
//!
//! * `access`: finds the directories of a workspace that this user may not read or search
//! * `compare`: compares an entry of the layer with the one that the workspace has already
//! * `git_dirs`: tells which directories of a workspace are git directories by their entries
//! * `implied`: compares each new directory of a layer with the workspace directory at the same path
//! * `index_at_start`: keeps the index of git that the workspace had when a run began
//! * `walk`: reads a layer and the places of the workspace that it covers

pub(crate) mod access;
pub(crate) mod compare;
pub(crate) mod git_dirs;
pub(crate) mod implied;
pub(crate) mod index_at_start;
pub(crate) mod walk;
