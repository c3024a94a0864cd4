//! The host's side: what the suite prepares, how it starts a driver, and how it looks at the result.

pub mod bench;
pub mod fault;
pub mod inspect;
pub mod ipc;
mod leftovers;
pub mod neighbour;
pub mod stale;
pub mod terminal;
pub mod world;
