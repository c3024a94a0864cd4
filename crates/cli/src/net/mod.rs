//! The network of a run: what its user grants and asks, and what the user reads about it. The engine serves it.
//!
//! ```text
//!  `--allow` (`args`) ─ `crate::profile::flags` ─┐
//!  profiles, nexus.yaml ─────────────────────────┴▶ `policy::profile::Grants` ─┐
//!  [egress], clients' settings ────────────────────────────────────────────────┴▶ `network` ─ `runner::net::rules` ─▶ `Policy`
//!                                                                                   └─▶ the engine's `RunNetwork`
//!  `ask`: questions on the terminal ◀─▶ the engine's `Service`; `elsewhere`: those for another session, by `requests`
//!  the engine's `NetworkEnd` ─▶ `nexus_hints::blocked`: lines on stderr
//! ```
//! The egress is a thread of the process that holds the sandbox, started after the clone: whatever ends that process
//! ends both, and the listeners are closed by the kernel. Nothing can be left that accepts.

pub mod args;
pub mod ask;
mod check;
pub mod command;
mod elsewhere;
mod given_answers;
pub mod host_port;
mod listening;
pub mod network;
mod proxy;
mod question;
mod requests;
pub mod saved;
