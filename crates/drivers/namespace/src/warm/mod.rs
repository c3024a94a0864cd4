//! A warm launcher: a process of one user that starts the sandboxes of later runs of that user, as those runs would.
//!
//! ```text
//!  nexus warm ─▶ door (host's namespaces) ──starts──▶ launcher process (its own user namespace, template, warm sandboxes)
//!                  │ accept: which process is it? like me?      ▲
//!                  └─ connection ──────────────────────────────┘
//!  nexus run ─▶ WarmDriver ─ connects ─ Greeting ─ Start(plan without command) ─▶ Started + channel, pidfd (, watch, upper)
//!                  └─ no door, another door, a plan that does not fit, no answer: the sandbox is cloned here
//! ```
//! A child inherits much of its parent that no plan names: limits, mask, control groups, priorities, labels. A launcher
//! therefore serves only processes that are like the one which started it (`likeness`); the name of its socket is the
//! digest of all that. The door never leaves the namespaces in which it was started, so that it and its callers can look at
//! each other through `/proc`.

mod claim;
mod client;
mod connection;
mod door;
mod likeness;
mod peer;
mod place;
mod serve;
mod wire;

pub use client::WarmDriver;
pub use connection::{Found, inspect_all};
pub use door::{DoorError, LauncherDoor};
pub use likeness::{Likeness, OwnFacts};
pub use place::{Place, PlaceError};
pub use serve::serve_warm;
pub use wire::Greeting;

/// Messages of a connection, for those who look at their encoding.
pub mod messages {
    pub use super::wire::{Answer, Greeting, Start};
}
