//! The workspaces of a territory, in one directory that belongs to its daemon.
//!
//! ```text
//!  facilities/
//!    NAME/
//!      facility.json   kind, repository, time, version of this form
//!      lock            {directive, fence} of the last holder; flock(2) while it lives
//!      ended           ids of the last directives that ended here
//!      tree/           the workspace: hostile content, which only layers change
//!      snapshots/HASH  one record for each snapshot; base: the last one; cache: what files looked like then
//!      .build-…        a tree that is being built, or is given up
//!      .tree-…         a tree that was replaced, and is scanned again before it is removed
//!    .gone-NAME-…      a facility that is being removed
//!    .fork-NAME-…      a facility that is being forked
//!    .snapshots/       the objects of all snapshots of all facilities
//! ```
//! Everything is opened under the descriptor of that directory, and no link is followed. A name is checked before it becomes
//! a path ([`FacilityName`]).
//!
//! * [`name`]: names that are safe as file names. Pure.
//! * [`kind`]: kinds of facilities and the repositories that one may be cloned from. Pure.
//! * [`store`]: creates, lists and removes facilities.
//! * [`lock`]: gives one directive the facility, and refuses a claim that is over.
//! * [`diff`]: shows what a directive changed, within a bound.
//! * [`glob`]: patterns of files to keep. Pure.
//! * [`artifacts`]: copies the files that a directive keeps, with their hashes.
//! * [`snapshots`]: states of a facility, kept by content.
//! * [`checkpoints`]: states of a workspace around a run that writes straight into it, and the way back.
//! * [`head`]: reads which commit a repository is at.

#![forbid(unsafe_code)]

pub mod artifacts;
mod beneath;
pub mod checkpoints;
pub mod diff;
mod ended;
pub mod glob;
pub mod head;
pub mod kind;
pub mod lock;
pub mod metadata;
pub mod name;
mod removal;
pub mod snapshots;
pub mod store;

pub use head::Head;
pub use kind::{Kind, KindError, RepoUrl};
pub use lock::{Claim, Lock, LockError};
pub use metadata::Metadata;
pub use name::{FacilityName, NameError};
pub use snapshots::{Record, Snapshots, StateError};
pub use store::{Facilities, Facility, StoreError, beside};
