//! Reads git repositories that a hostile process may have written, and finds what git and other trusted programs run of a
//! workspace. Nothing here changes a repository but [`index::in_place`], and nothing knows change layers.
//!
//! ```text
//!  names, class, git_dir, protect   which paths need an explicit accept, by their names (pure)
//!  config                           configurations, and which settings may change unasked (pure)
//!  leads                            what links, configurations, hooks and scripts of the host lead to
//!  refs, commits, paths, forms      files that name commits, by their paths and texts (pure)
//!  index                            the index of a working tree
//!  objects, packs                   objects: by their paths (pure), and verified against their ids
//!  submodules                       submodules and the URLs that `.gitmodules` has for them
//!  reads, small                     bounds of what is read
//! ```
//! Everything in a tree is reached below a directory descriptor (`nexus_beneath`).

#![forbid(unsafe_code)]

pub mod class;
pub mod commits;
pub mod config;
pub mod forms;
#[doc(hidden)]
pub mod fuzz;
pub mod git_dir;
pub mod index;
pub mod leads;
pub mod names;
pub mod objects;
pub mod packs;
pub mod paths;
pub mod protect;
pub mod reads;
pub mod refs;
pub mod small;
pub mod submodules;
