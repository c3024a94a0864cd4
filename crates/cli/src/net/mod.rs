//! The network of a run: what it may reach, who serves it, and what is reported about it.
//!
//! ```text
//!  flags, profiles ─▶ grants (`profile`), [egress], clients' settings ─▶ Network (policy)   before the sandbox exists
//!                                            │ prepare: the audit file
//!  guest: Listeners ───────────────────────▶ Service ─ serve ─▶ egress thread
//!                                            │ finish, after everything inside is dead
//!                                            ▼
//!                                          Ended ─▶ summary on stderr, --json, receipt
//! ```
//! The egress is a thread of the process that holds the sandbox, started after the clone: whatever ends that process
//! ends both, and the listeners are closed by the kernel. Nothing can be left that accepts.

mod args;
mod ask;
mod check;
mod command;
mod ended;
mod host_port;
mod listening;
mod log;
mod network;
mod proxy;
mod rules;
mod saved;
mod service;

pub use args::{Net, NetArgs, NetFlags, NetMethods, RuleArgs};
pub use ask::is_possible as can_ask;
pub use command::command;
pub use ended::Ended;
pub use host_port::{refuse_loopback_rules, refuse_ports_of_nexus};
pub use network::Network;
pub use saved::NAME as ASKED;
pub use service::Service;
