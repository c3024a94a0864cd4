//! The daemon of a territory: it claims directives, takes each along the path of `nexus run`, and reports.
//!
//! ```text
//!  WorkSource ◀─poll── daemon ──claim──▶ worker (a thread for each directive)
//!      ▲                 │                 │  note on the disk ─▶ started ─▶ policies ─▶ admit (pure)
//!      │                 │                 │  facility lock ─▶ prepare ─▶ engine: nexus_runner over the launcher ─▶ settle
//!      ├──log chunks─────┼── sender ◀──────┤  output, bounded
//!      ├──heartbeats─────┘   (all directives at once: extend, cancel, abort, lost)
//!      ├──finished──────────────────────── note with the result, synced ─▶ sent until it is acknowledged
//!      └──kept files────────────────────── copied before the facility is free, uploaded after the end
//! ```
//! The daemon has threads and starts no process: sandboxes are cloned by a launcher process, which also holds the end of each
//! lease and kills when it passes ([`lease`]). What a daemon that died left is decided by [`decide::reconcile`] before any work
//! is asked for.
//!
//! * [`claims`]: the notes about claims, which outlive the daemon.
//! * [`config`]: the file of settings that an operator writes.
//! * [`daemon`]: the threads of one territory.
//! * [`decide`]: what is decided without I/O: which directives are refused, how an end is reported, what is left of a dead daemon.
//! * [`lease`]: how long a claim holds, by the clock that goes on while the machine sleeps.
//! * [`reported`]: which lines about a fault that lasts are new.
//! * [`run`]: takes one directive through the engine.
//! * [`source`]: where work comes from: a control plane over HTTP, or memory in tests.
//! * [`spool`]: copies of files that directives keep, until they are uploaded.
//! * [`territory`]: the data directory and the settings of a territory.
//! * [`upkeep`]: the part of the recovery that the composition root brings.

#![forbid(unsafe_code)]

pub mod claims;
pub mod config;
pub mod daemon;
pub mod decide;
pub mod lease;
mod live;
mod report;
pub mod reported;
pub mod run;
mod slot;
pub mod source;
pub mod spool;
mod stop;
mod tape;
pub mod territory;
mod trial;
pub mod upkeep;

pub use config::{Config, ConfigError};
pub use daemon::{Daemon, DaemonError, Parts};
pub use lease::{LeaseDriver, boot_time};
pub use source::{HttpSource, SourceError, WorkSource};
pub use territory::{Settings, Territory, TerritoryError};
pub use upkeep::Upkeep;
