//! Sandboxes behind one trait.
//!
//! ```text
//!  probe ─▶ what works here, which guarantees, why not
//!  prepare(plan) ─▶ Handle: names all that will be touched, touches nothing; the caller saves it
//!  start(plan, handle) ─▶ Sandbox: a guest channel and a way to kill and wait
//!  destroy(handle) ─▶ nothing is left; from every state, any number of times
//!  inventory() ─▶ what on this host bears our mark
//! ```
//! Commands, signals and their ends go over the guest channel, so that a driver does not implement them. [`Session`]
//! is the host's side of them. The feature `fake` adds a driver whose guest follows a script, the feature `conformance` the
//! suite that every driver must pass.

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
mod session;

pub use error::{DestroyError, InventoryError, PrepareError, SetupError, StartError};
pub use handle::Handle;
pub use ledger::{LEADER, Refused};
pub use nexus_channel::{Channel, ChannelError, codec, frames};
pub use not_started::NotStarted;
pub use probe::{Finding, Missing, ProbeReport};
pub use received::{Listeners, ProcessView};
pub use session::{AskError, CommandEvent, Ended, Event, MoreCommand, Session, Stdio};

use nexus_model::Plan;
use nexus_model::proof::ProofPlan;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;

/// One kind of isolation.
pub trait Driver {
    /// Its name in configuration and records.
    fn name(&self) -> &'static str;
    /// Reports the guarantees that this machine allows. Cheap, and changes nothing.
    fn probe(&self) -> ProbeReport;
    /// Names everything that starting this plan will touch. Changes nothing.
    fn prepare(&self, plan: &Plan) -> Result<Handle, PrepareError>;
    /// Starts a sandbox. On an error the caller still calls `destroy`.
    fn start(&self, plan: &Plan, handle: &Handle) -> Result<Sandbox, StartError>;
    /// Everything on this host that bears our mark and that this user may see.
    fn inventory(&self) -> Result<Vec<String>, InventoryError>;
    /// Ends and removes everything that the handle names.
    fn destroy(&self, handle: &Handle) -> Result<(), DestroyError>;
}

/// A sandbox that was started; what comes first on its channel says whether it stands.
pub struct Sandbox {
    /// To its guest.
    pub channel: Channel,
    /// The upper directory of a layer in memory, when the launcher made it.
    pub upper: Option<OwnedFd>,
    /// Tells when the workspace's overlay is gone for good; for `overlay_is_gone` of its driver. `None`: nothing tells.
    pub watch: Option<OwnedFd>,
    /// Facts that the guest must confirm before a command starts.
    pub proof: ProofPlan,
    /// Kills and waits.
    pub keeper: Box<dyn SandboxProcess>,
}

/// Holds on to a sandbox from outside.
pub trait SandboxProcess {
    /// Kills everything inside.
    fn kill(&self) -> io::Result<()>;
    /// Takes away the limits that would delay the death of what the end of the main command kills.
    fn hurry(&self) {}
    /// Lets go of what only the set-up needed. To be called when the sandbox stands; it may take milliseconds, which are
    /// free while the command starts.
    fn has_come_up(&self) {}
    /// Waits until everything inside is dead. Call it once.
    fn wait(&self) -> io::Result<()>;
    /// Removes what it has on the host beside its processes, after `wait`.
    fn release(&self) -> io::Result<()>;
    /// Becomes readable when the sandbox is dead.
    fn ended(&self) -> Option<BorrowedFd<'_>>;
    /// Returns the number of times that the kernel killed a process inside for memory.
    fn oom_kills(&self) -> io::Result<u64>;
}
