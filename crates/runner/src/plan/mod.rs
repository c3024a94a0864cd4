//! Turns a request into a plan: looks at the paths that a request names, and refuses what cannot be run.
//!
//! ```text
//!  site ◀─ workspace
//!   └─▶ resolve ◀─┬─ mounts, fit: can the workspace carry a layer?
//!         │       ├─ direct ◀─ protect ◀─ git_host, scan ─▶ watch
//!         ▼       ├─ binds ◀─ devices, guarded; sockets ◀─ pins; hide
//!     ResolvedRun └─ environment ◀─ credential
//! ```
//! The workspace:
//! * `site`, `workspace`: open the workspace and its working directory, and refuse directories that cannot be one
//! * `mounts`, `fit`: refuse a workspace that cannot carry a layer
//! * `scan`, `protect`, `git_host`, `watch`: what a commit holds back, and what a direct run (`direct`) covers or watches
//! * `hide`: the paths that cannot be read inside
//!
//! Other paths of the host:
//! * `binds`, `shown`, `homes`: the paths that are shown inside
//! * `guarded`, `configuration`: the paths that no bind shows
//! * `sockets`, `pins`, `closed`: what is covered in binds, and the directories that no search can look through, also by their
//!   `access_list`
//! * `devices`: the character devices that a command may be given
//!
//! The environment: `environment`, `credential`

mod access_list;
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
