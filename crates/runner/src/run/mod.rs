//! The way of one run, from a resolved request to its report.
//!
//! ```text
//!  ResolvedRun ─▶ Prepared ─────────▶ Running ──────▶ Finished ────────────▶ RunReport
//!                 record, lock,       sandbox that    nothing inside lives,  changes settled, receipt,
//!                 layer, network      was started     network ended          record gone
//!                   │ error: undo       │ error: undo    │ error: changes parked
//!                   ▼                   ▼                ▼
//!                 RunError: nothing of the run stays but work of its command, which waits
//! ```
//! Each stage can be made only of the one before it: [`prepared::Prepared::new`], [`running::Running::start`],
//! [`finished::Finished::attend`], [`finished::Finished::settle`]. Between the first two the caller makes its attendant.

pub mod error;
pub mod finished;
pub mod held;
pub mod prepared;
pub mod receipt;
pub mod report;
pub mod running;
pub mod streams;
pub mod surroundings;
