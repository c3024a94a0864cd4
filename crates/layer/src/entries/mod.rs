//! The entries of a layer as data, and the rules about them as pure functions.
//!
//! * `arrival`: decides whether a directory of the workspace came to its name after the run began
//! * `changes`: the report of the changes of a run, as a review shows it and as `--json` prints it
//! * `committed_entry`: records of workspace entries as an earlier commit of the same layer left them
//! * `index_notes`: a record of the content that a git index of the workspace had when a run began
//! * `marks`: overlay's own extended attributes, and what they mean
//! * `protected`: the rules of a commit: protected names, and the changes that the user accepted
//! * `shared_path`: paths of many entries, which share the bytes of their text: an entry of a layer stays small
//! * `tie`: decides whether the names of a file in a layer may stay hard links to one file
//! * `tree`: the data read from a layer and from the places of the workspace that it covers
//! * `verdict`: decides whether an entry changes anything, how it is reported, and whether it needs an accept
//! * `yours`: conflicts that the user decided in favour of the run

pub(crate) mod arrival;
pub mod changes;
pub(crate) mod committed_entry;
pub(crate) mod index_notes;
pub mod marks;
pub mod protected;
pub(crate) mod shared_path;
pub(crate) mod tie;
pub mod tree;
pub(crate) mod verdict;
pub(crate) mod yours;
