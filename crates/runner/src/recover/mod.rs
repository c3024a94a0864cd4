//! Clears up after runs, as far as a run itself needs that.
//!
//! ```text
//!  layer ─▶ remove                     a commit that stopped half-way ─▶ interrupted ─▶ kept: what became of each path
//!  a run whose caller died after its end ─▶ signed: the end as the receipt states it
//! ```
//! The recovery of killed runs is still in the command line, which hands it in as a [`steps::Recovery`].

pub mod error;
pub mod interrupted;
pub mod kept;
pub mod remains;
pub mod remove;
pub mod signed;
pub mod steps;
