//! Clears up after runs whose caller was killed, and as far as a run itself needs that.
//!
//! ```text
//!  clear ─▶ sandboxes (killed, by `remains` of a driver) ─▶ layers (parked, removed) ─▶ unsaid: what was kept
//!     └─▶ a commit that stopped half-way ─▶ interrupted ─▶ finish ─▶ kept: what became of each path
//!  a run whose caller died after its end ─▶ signed: the end as the receipt states it
//! ```
//! What was done is reported in notices; an error has a code, and the caller adds its advice.

pub mod clear;
pub mod error;
pub mod finish;
pub mod interrupted;
pub mod kept;
pub mod layers;
pub mod recovery;
pub mod remains;
pub mod remove;
pub mod report;
pub mod retry;
pub mod sandboxes;
pub mod signed;
pub mod unsaid;
