//! Control groups for the limits that need them: memory and processor time.
//!
//! ```text
//!  find ──▶ Group (names only, saved before anything is made) ──make──▶ directories ──v2: clone into it, v1: enter(pid)──▶ …
//!       ──remove──▶ nothing
//! ```
//! Works with v2 and with the v1 controllers of a hybrid host. Processes are bounded by RLIMIT_NPROC, which holds per
//! user namespace and needs no rights, so that a run without these limits makes no control group at all.

mod find;
mod group;
mod hand_over;

pub use find::{Hierarchies, OwnGroups, Wanted, find};
pub use group::Group;
pub use hand_over::hand_over;
