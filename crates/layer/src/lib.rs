//! Change layers: what a command did to a workspace, kept apart until the user decides.
//!
//! A run writes into an overlay whose upper directory belongs to the run. Afterwards the upper directory is the
//! change, and this crate reads it, decides what may reach the workspace, and brings it there so that a crash at any
//! moment leaves the old version or, after [`recover()`], the new one.
//!
//! ```text
//!  Layer::create ─▶ (the launcher mounts, the command runs) ─▶ Layer::changes  what happened, nothing touched
//!                                                           ├─▶ Layer::commit   sync → walk → plan → stage → journal
//!                                                           │                  → apply → finish
//!                                                           ├─▶ Layer::park     kept for a review
//!                                                           └─▶ Layer::discard
//!  after a crash: recover(layers, run, workspace): a journal goes forward, or back if that had begun; without one only
//!                 an empty layer is removed, and the caller parks the others
//! ```
//!
//! * Pure: [`marks`] (overlay attributes), [`protected`] (the rules of a commit), [`tree`] (what was read), [`plan`], `renames` and
//!   `partial` (what a commit would do), [`changes`] (the report).
//! * I/O: [`after`] (the files as a run left them), `walk`, `compare`, `access`, `scan`, `git_dirs`, `bare`, `copies`, `databases`, `git_lock`, `hardlinks`,
//!   `leads`, `link_ends`, `link_steps`, `link_in_place`, `copy`, `sync`, [`state_file`], [`layer`]. [`commit`] is a room of its own.
//! * `nexus_git` reads repositories and knows what git and other programs run; `nexus_beneath` reaches every entry through a
//!   directory descriptor.
//!
//! Everything inside a workspace or a layer was written by a hostile process, which may still be running and swap
//! directories for links while we work. No path is ever resolved from the root of the file system: see `nexus_beneath`.

#![forbid(unsafe_code)]

mod access;
pub mod after;
mod altered;
mod arrival;
mod autostash;
mod bare;
mod bare_links;
mod bases;
mod between;
mod borrowers;
mod branches;
mod by_content;
pub mod changes;
mod closed;
pub mod commit;
pub(crate) mod committed_entry;
mod compare;
mod copies;
mod copy;
mod copy_trees;
mod databases;
pub mod diff;
mod empty;
mod endpoints;
mod errors;
pub mod faults;
mod further_trees;
mod git_damage;
mod git_dirs;
mod git_index;
mod git_lock;
mod git_objects;
mod git_packs;
mod git_rules;
pub mod going;
mod graphs;
mod halves;
mod hardlink_groups;
mod hardlinks;
mod identity;
mod implied;
mod in_the_way;
mod incomplete;
mod index_at_start;
mod index_notes;
mod keep_yours;
pub mod layer;
mod led_to;
mod link_ends;
mod link_in_place;
mod link_steps;
mod locked;
pub mod marks;
mod memory;
mod merge;
mod merge_yours;
mod nested;
mod object_steps;
mod opened;
pub mod origin;
mod orphans;
mod other_repositories;
mod outside;
mod outside_branches;
mod packed;
mod part;
mod partial;
pub mod plan;
pub mod pool;
pub mod protected;
mod reading;
mod recorded;
mod refs_by_content;
mod remove;
mod renames;
mod replaced;
mod report;
mod scan;
mod shallow;
pub(crate) mod shared_path;
pub(crate) mod sources;
mod sqlite_files;
pub mod started;
mod stash;
pub(crate) mod state;
pub mod state_file;
mod sync;
mod tie;
mod tied;
pub mod top;
pub mod tree;
mod unmade;
mod unmarked;
mod upper;
mod verdict;
mod waiting_refs;
mod walk;
mod with_index;
mod xattr;
mod yours;

use nexus_beneath::{self as beneath, fold};

pub use bases::BaseSurvey;
pub use changes::{Change, ChangeKind, ChangeSet, Conflict, Outside};
pub use commit::abandon::{
    Abandoned, Aside, abandon, clear_staging, found_kept, found_set_aside, found_staging, set_aside,
    set_aside_undecided,
};
pub use commit::journals::journals_of;
pub use commit::leftover::Leftover;
pub use commit::recover::{Finished, RecoverError, Recovered, Stage, recover, stage};
pub use commit::roll_back::{found_beside, is_applied, is_being_taken_back, roll_back};
pub use commit::writers::open_for_reading;
pub use faults::{Comparison, Faults, Step};
pub use identity::Home;
pub use keep_yours::YoursError;
pub use layer::{
    CommitError, CommitState, Committed, CreateLayerError, DiscardError, Layer, LayerMode, OpenLayerError, ParkError,
    ReadLayerError,
};
pub use link_in_place::{Lead, LinksInPlace};
pub use memory::is_whole_copy;
pub use meta::FsTime;
pub use nested::WITH_REPOSITORY;
pub use nexus_beneath::DirectoryIdentity;
pub use nexus_beneath::{IoFailure, LeaseCall, Workspace, meta};
pub use nexus_git::index::in_place::{HeldIndex, hold_bad_index};
pub use nexus_git::leads::{Host, Reach};
pub use nexus_git::reads::Reads;
pub use origin::LayerOrigin;
pub use pool::LayerPool;
pub use protected::Rules;
pub use refs_by_content::stands_for_another;
pub use remove::remove_directory;
pub use started::Started;
pub use stash::{Holds, Stash};
pub use yours::{Merge, Yours};
