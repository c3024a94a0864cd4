//! The documents of `docs/protocol` as JSON. `cargo xtask sync-schema` writes the copies.

/// Conduits v1, for daemons.
pub const CONDUITS: &str = include_str!("documents/conduits.json");
/// Mothership v1, for users and programs.
pub const MOTHERSHIP: &str = include_str!("documents/mothership.json");
/// The typed events of a run.
pub const EVENTS: &str = include_str!("documents/events.json");
