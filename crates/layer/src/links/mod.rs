//! Symbolic links and hard links of a layer: where they lead, and which names may stay names of one file.
//!
//! * `hardlink_groups`: groups the entries of a layer that are hard links to one file
//! * `hardlinks`: decides which names of one file may stay names of one file
//! * `link_budget`: limits the work of resolving links that a command created
//! * `link_ends`: holds back new links that lead to protected files
//! * `link_in_place`: resolves the links that a direct run (without a layer) created in the workspace

pub(crate) mod hardlink_groups;
pub(crate) mod hardlinks;
pub(crate) mod link_budget;
pub(crate) mod link_ends;
pub(crate) mod link_in_place;
