//! Turns a request into a plan: looks at the paths that a request names, and refuses what cannot be run.
//!
//! ```text
//!  site ◀─ workspace
//!   └─▶ resolve ◀─┬─ mounts, fit: can the workspace carry a layer?
//!         │       ├─ direct ◀─ protect ◀─ git_host, scan ─▶ watch
//!         ▼       ├─ binds ◀─ devices, guarded; sockets ◀─ pins; hide
//!     ResolvedRun └─ environment ◀─ credential
//! ```

pub mod binds;
mod closed;
pub(crate) mod configuration;
pub mod credential;
pub mod devices;
pub mod direct;
pub mod environment;
pub mod fit;
pub mod git_host;
pub mod guarded;
pub mod hide;
pub mod homes;
pub mod mounts;
mod pins;
pub mod protect;
pub mod resolve;
pub mod scan;
pub mod shown;
pub mod site;
pub mod sockets;
pub mod watch;
pub mod workspace;
