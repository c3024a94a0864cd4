//! Detached sandboxes: their store, the supervisor of each, and its clients.
//!
//! ```text
//!  supervisor: hub ◀─ attend ◀─ pump of the run        client: link ─▶ until_ended, or a view of the caller's
//!     │          └─ answer: what clients ask for          │
//!     └─ ring, client, command, feed ◀──── wire ──────────┘        store: directory, lock, socket, ending of each
//! ```
//! A supervisor that ends takes everything inside along, whatever ended it; what it kept of changes is recovered by the
//! next command, as after any run that was killed.

pub mod answer;
pub mod attend;
pub mod client;
pub mod closing;
pub mod command;
pub mod ending;
pub mod feed;
pub mod hub;
pub mod link;
pub mod name;
pub mod outside;
pub mod process;
pub mod silent;
pub mod store;
pub mod until_ended;
pub mod wire;
