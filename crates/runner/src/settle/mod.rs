//! Settles a run's changes: commits, parks or discards them.
//!
//! ```text
//!  create ─▶ layer ─▶ end ─┬─ commit ──▶ committed (and perhaps a rest parked) | conflicts or no room: parked, exit 125
//!                          │               └─ interrupted: finished, or taken back and parked
//!                          ├─ the run was cut short: parked
//!                          ├─ review, or nothing was written: parked, removed
//!                          ├─ the sandbox is not gone yet: lingers, left to a later command
//!                          └─ discard, or the run broke its disk limit ──▶ discarded
//! ```
//! The note about a layer's run is written together with the layer: later the disk may be full, and a layer without
//! one would be in no list. [`problem`] has all that can go wrong, [`settled`] the result.

pub mod create;
pub mod cut_short;
pub mod end;
pub mod frontend;
pub mod interrupted;
pub mod lingers;
pub mod open_files;
pub mod parking;
pub mod problem;
pub mod settled;
