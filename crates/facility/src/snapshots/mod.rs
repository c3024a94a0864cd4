//! Takes, restores, forks, compares and removes snapshots of a facility. Their files are kept by content.
//!
//! ```text
//!  take ─ scan of tree/ ─▶ objects in .snapshots/, synced ─▶ record NAME/snapshots/HASH, renamed in
//!  restore ─ take, unless told not to ─▶ .build-… built beside and synced ─▶ .tree-… ─▶ exchanged with tree/ ─▶ the old one is scanned
//!             again: what came meanwhile is taken, too ─▶ removed, once no process has a file of it open for writing
//!  fork ─ .fork-NEW-… with a tree and the record ─▶ synced ─▶ renamed to NEW
//!  clean ─ alone with the store ─▶ what no record of any facility reaches is removed
//! ```
//! The record is written last, and a snapshot exists once its record does. The file of a record is named after its hash.
//!
//! * [`record`]: the form of a record. Pure.
//! * [`history`]: the records of one facility.
//! * [`error`]: the error type.
//! * `reading`: reads trees of facilities.
//! * [`states`]: takes, restores, forks, compares and cleans.

pub mod error;
pub mod history;
mod reading;
pub mod record;
pub mod states;

pub use error::StateError;
pub use nexus_snapshot::{Change, ChangeKind};
pub use record::Record;
pub use states::{Cleaned, Difference, InUse, Restored, Snapshots, Taken};
