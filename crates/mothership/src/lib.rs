//! The control plane of a fleet: a library without process-wide state, which the program starts by [`serve`].
//!
//! ```text
//!  listen ─▶ http (routes, rights, handlers) ─▶ decide (pure) ─▶ store (SQLite or PostgreSQL) ◀─ tasks (reaper)
//!                       identity (secrets, tokens, certificates)        lobby (polls that wait)      blobs (kept files)
//! ```
//! A daemon takes directives by Conduits v1, and users give them by Mothership v1; both stand in `nexus_api`. The state of a
//! directive changes by `nexus_model::directive::step` alone.

#![forbid(unsafe_code)]

mod app;
mod blobs;
mod clock;
mod config;
mod console;
mod decide;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod identity;
mod listen;
mod lobby;
mod metrics;
mod rights;
mod rotation;
mod serve;
mod slots;
mod stall;
mod store;
mod streams;
mod tasks;
mod tidy;
mod tls;

pub use blobs::{BucketKey, BucketSettings};
pub use clock::Clock;
pub use config::{Config, TerritoryAuth};
pub use decide::past_run;
pub use identity::{HeadKey, ProcessSecret, ProxySecret, Validity, check_head, head_key, validity};
pub use listen::Listener;
pub use nexus_api::tls::TlsError;
pub use rotation::{RotationError, rotate_authority};
pub use serve::{Running, ServeError, serve};
pub use store::postgres::Database;
pub use store::types::{ArtifactBounds, LeaseTimes, Retention};
pub use store::{StoreError, move_to_postgres};
pub use tls::TlsIdentity;
