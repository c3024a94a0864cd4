//! The network of a run: what its user grants and asks, and what the user reads about it. The engine serves it.
//!
//! ```text
//!  flags, profiles ─▶ grants (`profile`), [egress], clients' settings ─▶ `network` ─▶ the engine's `RunNetwork`
//!  `ask`: questions on the terminal ◀─▶ the engine's `Service`
//!  the engine's `NetworkEnd` ─▶ `ended`: lines on stderr
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
mod saved;

pub use args::{Net, NetArgs, NetFlags, NetMethods, RuleArgs};
pub use ask::{QUIET, hold as question_hold, is_possible as can_ask, raise_descriptors, side as caller_side};
pub use command::command;
pub use ended::{client_group, lines as ended_lines, named as named_hosts};
pub use host_port::{refuse_loopback_rules, refuse_ports_of_nexus};
pub use network::{of as network, told as network_rules};
pub use saved::NAME as ASKED;
