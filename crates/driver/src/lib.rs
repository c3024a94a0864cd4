//! Sandboxes behind one trait.
//!
//! ```text
//!  probe ─▶ what works here, which guarantees, why not
//!  prepare(plan) ─▶ Handle: names all that will be touched, touches nothing; the caller saves it
//!  start(plan, handle) ─▶ Sandbox: a guest channel and a way to kill and wait
//!  destroy(handle) ─▶ nothing is left; from every state, any number of times
//!  inventory() ─▶ what on this host bears our mark
//! ```
//! A driver brings a Unix socket to a guest that speaks the frames of `nexus_channel` and passes descriptors. Commands,
//! signals and the ends of commands go over it, so that a driver does not implement them. [`Session`] is the host's side of
//! them. Every driver gives the guarantees in [`REQUIRED`].
//!
//! The feature `fake` adds a driver whose guest follows a script, the feature `conformance` the suite that every driver
//! must pass.

#![forbid(unsafe_code)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
#[cfg(feature = "fake")]
pub mod fake;
mod handle;
mod ledger;
mod not_started;
mod outbox;
mod probe;
mod received;
mod sandbox;
mod session;

pub use error::{DestroyError, InventoryError, PrepareError, SetupError, StartError};
pub use handle::Handle;
pub use ledger::{MAIN_COMMAND, Refused};
pub use nexus_channel::{Channel, ChannelError, codec, frames};
pub use not_started::NotStarted;
pub use probe::{Finding, Missing, ProbeReport};
pub use received::{Listeners, ProcessView};
pub use sandbox::{ChangeSource, Found, Sandbox, SandboxProcess};
pub use session::{AskError, CommandEvent, Ended, Event, MoreCommand, Session, Stdio};

use nexus_model::{Guarantee, Plan};

/// The guarantees that every driver gives for a plan that allows them: without one of them a command reaches the host, or
/// outlives its run. A driver may give more; its probe says which.
pub const REQUIRED: &[Guarantee] = &[
    Guarantee::FsWorkspaceOnly,
    Guarantee::NetNone,
    Guarantee::KillComplete,
    Guarantee::IpcIsolated,
    Guarantee::KeyringIsolated,
];

/// One kind of isolation. Threads may share it.
pub trait Driver: Send + Sync {
    /// Its name in configuration and records.
    fn name(&self) -> &'static str;
    /// Reports the guarantees that this machine allows. Cheap, and changes nothing.
    fn probe(&self) -> ProbeReport;
    /// Names everything that starting this plan will touch. Changes nothing; not to be confused with `Prepared` of the engine,
    /// which makes the record, the layer and the network.
    fn prepare(&self, plan: &Plan) -> Result<Handle, PrepareError>;
    /// Starts a sandbox. On an error the caller still calls `destroy`.
    fn start(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError>;
    /// Returns everything on this host that bears our label and that this user may see.
    fn inventory(&self) -> Result<Vec<Found>, InventoryError>;
    /// Ends and removes everything that the handle names.
    fn destroy(&self, handle: &Handle) -> Result<(), DestroyError>;
}
