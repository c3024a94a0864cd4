//! Commits a layer to the workspace: no race, error or power failure loses a version of any file.
//!
//! ```text
//!  plan ─▶ stage ─▶ journal ─▶ apply ─▶ outcome, journal.done ─▶ finish
//!            │         │         ├─ a path changed meanwhile: kept back, both versions stay
//!            │         │         └─ an error that stays: roll_back, or left for recover
//!            └─────────┴─ any error: nothing of the workspace changed
//! ```
//! * Pure: [`ops`] (the steps), [`seen`] (identity of entries), [`directory_content`] (the entries of a directory), `actions` (decision → steps), `dir_times`.
//! * I/O: `stage` (copies before the decision), [`journal`], `apply` (the steps), `displaced` (what came out), `finish`,
//!   `immovable` (what the file system will not move),
//!   [`roll_back`], [`recover`], [`abandon`].

pub mod abandon;

pub(crate) mod actions;
pub(crate) mod apply;
mod as_put;
pub mod beside;
pub(crate) mod calls;
pub(crate) mod copied_up;
pub(crate) mod decide;
pub(crate) mod decided;
pub(crate) mod dir_attrs;
pub(crate) mod dir_times;
pub(crate) mod directories;
pub mod directory_content;
pub(crate) mod displaced;
pub(crate) mod empty_directories;
pub(crate) mod errors;
pub(crate) mod finish;
pub(crate) mod immovable;
pub mod journal;
pub(crate) mod journals;
pub(crate) mod kept_objects;
pub mod leftover;
pub(crate) mod marks_back;
pub(crate) mod movable;
pub(crate) mod only_copies;
pub mod ops;
pub(crate) mod prune;
pub mod recover;
pub(crate) mod removing;
pub(crate) mod returned;
pub mod roll_back;
pub(crate) mod rooms;
pub mod seen;
pub(crate) mod side;
pub(crate) mod stage;
pub(crate) mod steps;
pub(crate) mod survey;
pub(crate) mod sweep;
pub(crate) mod uncopied;
pub(crate) mod units;
pub(crate) mod withdrawn;
pub(crate) mod writers;
