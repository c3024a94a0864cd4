//! The launcher as a process of its own: small, single-threaded, started before its user has threads.
//!
//! ```text
//!  daemon (client) ──Prepare(plan)──────▶ launcher (server)
//!                  ◀── handle | error
//!                  ──Start(plan, handle)─▶ ──clone──▶ sandbox
//!                  ◀── Started + channel, pidfd (, upper) | error       (one request at a time; ended children are reaped)
//!                  ──KeepUntil(run, time)▶ (kills the sandbox at that time, whatever became of the daemon)
//! ```
//! Errors arrive as the enums that the driver returned. A fork from a daemon would copy its page tables (5.5 ms for
//! 256 MiB) and its locked locks. When the launcher dies, its sandboxes die (PDEATHSIG); when its user dies, their
//! channels end, and they die too.

mod client;
pub(crate) mod deadlines;
pub(crate) mod leased;
mod server;
pub(crate) mod wire;

pub use client::{KeepError, Launcher};
pub use nexus_jail::PoolConfig;
pub use server::{serve, serve_stdin};
