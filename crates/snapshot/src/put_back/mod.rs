//! Brings a directory that is in use back to a kept tree, entry by entry, beside programs and people who work in it.
//!
//! ```text
//!  three kept trees: wanted (before a run), left (by the run), present ──decide──▶ steps, and paths that somebody changed since
//!  steps ─▶ what comes is built in ROOT/STAGING and synced ─▶ each exchanged with what is there, or renamed
//!        ─▶ what was displaced is read again: as in the present tree? gone with STAGING : put beside, under a name of its own
//!        ─▶ attributes of directories ─▶ synced ─▶ STAGING removed, entry by entry: only what was read and is as it was then
//! ```
//! Each entry is the old or the new one at every moment. A caller that was killed keeps the tree again, STAGING included, removes
//! STAGING, and decides again: a path that has its wanted state needs no step. Nothing that `present` does not have is ever
//! removed: what comes into a displaced tree, or is open for writing, is put beside with all that is left of the tree.
//!
//! * `trees`: reads entries of kept trees by their paths.
//! * [`decide()`]: which paths change, and which are left as they are. Reads kept trees alone.
//! * `attributed`: attributes of entries, compared and set.
//! * `setting`: steps that set attributes.
//! * `displaced`: compares what was displaced with what was there when the present tree was kept.
//! * `seen`: what was read of displaced trees. Pure.
//! * `remove`: removes displaced trees.
//! * [`apply()`]: carries the steps out.
//! * `staging`: removes the staging directory.

pub mod apply;
mod attributed;
pub mod decide;
mod displaced;
mod remove;
pub(crate) mod seen;
mod setting;
mod staging;
mod trees;

pub use apply::{Applied, Aside, Place, apply};
pub use decide::{Choice, Decision, Left, Trees3, decide};
pub use staging::remove_staging;
pub use trees::file_at;
