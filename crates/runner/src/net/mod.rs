//! The network of a run, as far as it is not the egress itself.
//!
//! ```text
//!  grants, settings, groups, addresses ─▶ rules ─▶ network
//!                                                    │ prepare: the record
//!  guest: listeners ───────────────────────────────▶ service ─ serve ─▶ egress thread
//!                                                    │ finish, after everything inside is dead
//!                                                    ▼
//!                                                  ended ─▶ report, receipt
//! ```

pub mod addresses;
pub mod ended;
pub mod network;
pub mod record;
pub mod rules;
pub mod service;
pub mod variables;
