//! A layer in its directory: made, opened, read, parked, and removed. The commit has a directory of its own:
//! [`commit`](crate::commit).
//!
//! * `altered`: detects changes to a parked layer after it was parked or last shown to the user
//! * `empty`: removes a layer that nothing was written to
//! * `layer`: one run's layer, and its ways to end
//! * `locked`: the name of a layer's directory, and the lock on it
//! * `memory`: a layer in memory
//! * `open_for_recovery`: opens and locks a layer that no other process uses, and reads which decision was recorded
//!   for it
//! * `origin`: opens the layer of a run that ended before its commit was decided
//! * `pool`: directories for layers that are made ahead or removed later
//! * `recorded`: records the file sizes of a layer when it is parked
//! * `removal`: removes a layer with everything in it, or sets it aside
//! * `separate`: separates a layer from processes that may still have a file of it open, by copies

pub(crate) mod altered;
pub(crate) mod empty;
pub mod layer;
pub(crate) mod locked;
pub(crate) mod memory;
pub(crate) mod open_for_recovery;
pub mod origin;
pub mod pool;
pub(crate) mod recorded;
pub(crate) mod removal;
pub(crate) mod separate;
