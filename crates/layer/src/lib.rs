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
//! Each directory has a header that lists its files. A directory uses those above it in this table, never one below
//! (`cargo xtask check-deps` finds circles):
//!
//! | Directory | What is in it |
//! |---|---|
//! | [`faults`], `errors` | the phases by name, for tests; the errors |
//! | [`entries`] | what is known of each entry, and the rules about it; data and pure functions |
//! | [`disk`] | single entries on the disk: attributes, copies, removal |
//! | `read` | reads a layer and the places of the workspace that it covers |
//! | `links`, `special_files` | what links lead to; sockets, FIFOs and lock files |
//! | `git` | what a layer brings to git repositories, and which of it waits |
//! | `databases` | files that are of no use without another one |
//! | [`moves`] | the calls that move entries |
//! | [`journal`] | the decision of a commit, as data and as a file |
//! | [`decide`] | what a commit does with each entry |
//! | `last_copies` | what may be the last copy of something that a commit removes |
//! | `survey` | reads a layer with all of this: a verdict for each entry |
//! | `places`, `notes`, `staging` | what a commit works with: directories, notes in the layer, staged copies |
//! | [`store`] | a layer in its directory: made, opened, parked, removed |
//! | [`commit`] | the commit, and what follows a crash |
//! | [`review`] | shows a layer, and merges versions in conflict |
//!
//! `nexus_git` reads repositories and knows what git and other programs run; `nexus_beneath` reaches every entry through a
//! directory descriptor.
//!
//! Everything inside a workspace or a layer was written by a hostile process, which may still be running and swap
//! directories for links while we work. No path is ever resolved from the root of the file system: see `nexus_beneath`.

#![forbid(unsafe_code)]

pub mod commit;
mod databases;
pub mod decide;
pub mod disk;
pub mod entries;
mod errors;
pub mod faults;
mod git;
pub mod journal;
mod last_copies;
mod links;
pub mod moves;
mod notes;
mod places;
mod read;
pub mod review;
mod special_files;
mod staging;
pub mod store;
mod survey;

use nexus_beneath::{self as beneath, fold};

pub use commit::abandon::{
    Abandoned, Aside, abandon, clear_staging, found_kept, found_set_aside, found_staging, set_aside,
    set_aside_undecided,
};
pub use commit::forward::CommitFinished;
pub use commit::recover::{LayerStage, RecoverError, Recovered, recover, stage};
pub use commit::roll_back::{found_beside, is_applied, is_being_taken_back, roll_back};
pub use disk::identity::Home;
pub use disk::remove::remove_directory;
pub use disk::started::Started;
pub use entries::changes::{Change, ChangeKind, ChangeSet, Conflict, Outside};
pub use entries::protected::Rules;
pub use entries::yours::{Merge, Yours};
pub use faults::{Comparison, Faults, Phase};
pub use git::bases::BaseSurvey;
pub use git::nested::WITH_REPOSITORY;
pub use git::refs_by_content::stands_for_another;
pub use git::stash::{Holds, Stash};
pub use journal::journals::journals_of;
pub use links::link_in_place::{Lead, LinksInPlace};
pub use meta::FsTime;
pub use moves::leftover::Leftover;
pub use nexus_beneath::DirectoryIdentity;
pub use nexus_beneath::{IoFailure, LeaseCall, Workspace, meta};
pub use nexus_git::index::in_place::{HeldIndex, hold_bad_index};
pub use nexus_git::leads::{Host, Reach};
pub use nexus_git::reads::Reads;
pub use places::writers::open_for_reading;
pub use review::keep_yours::YoursError;
pub use store::layer::{
    CommitError, CommitState, Committed, CreateLayerError, DiscardError, Layer, LayerMode, OpenLayerError, ParkError,
    ReadLayerError,
};
pub use store::memory::is_whole_copy;
pub use store::origin::LayerOrigin;
pub use store::pool::LayerPool;
