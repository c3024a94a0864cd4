//! Commits a layer to the workspace: no race, error or power failure loses a version of any file.
//!
//! ```text
//!  plan ─▶ stage ─▶ journal ─▶ apply ─▶ outcome, journal.done ─▶ finish
//!            │         │         ├─ a path changed meanwhile: kept back, both versions stay
//!            │         │         └─ an error that stays: roll_back, or left for recover
//!            └─────────┴─ any error: nothing of the workspace changed
//!
//!  Layer::commit (committing) ─▶ Layer::decide (decide/decision) ─▶ forward::roll_forward ─┬─ EXDEV: Layer::take_back
//!                                                                                         └─ error: forward::go_on
//! ```
//! * `committing`: [`Layer::commit`](crate::Layer::commit), the way through all stages
//! * `decide`: from a plan to a journal; the rename of the journal is the commit point
//! * `forward`: everything after the commit point, in a first pass and in a recovery
//! * `apply`: the steps of the journal, one by one
//! * `finish`: removes what the commit displaced and what it brought
//! * `taken_back`: takes a commit back that cannot go on, while its command still runs
//! * [`roll_back`]: the steps in reverse order
//! * [`recover`]: ends commits that a crash interrupted
//! * [`abandon`]: ends a layer without a commit
//!
//! The journal and the notes beside it have directories of their own: [`journal`](crate::journal), `notes`, `staging`,
//! `places` and [`moves`](crate::moves).

pub mod abandon;

pub(crate) mod apply;
mod committing;
pub(crate) mod decide;
pub(crate) mod finish;
pub(crate) mod forward;
pub mod recover;
pub mod roll_back;
mod taken_back;
