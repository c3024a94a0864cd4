//! A sandbox that a driver started, with the driver's own statements about it.

use nexus_channel::Channel;
use nexus_model::proof::Expectation;
use nexus_model::{Guarantee, RunId};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

/// A sandbox that was started. The first frame on its channel says whether its set-up succeeded.
pub struct Sandbox {
    /// Channel to its guest.
    pub channel: Channel,
    /// Guarantees that the driver holds for this sandbox. The receipt of a run signs these, once the proof has held.
    pub guarantees: BTreeSet<Guarantee>,
    /// Attempts that the guest makes before each command starts, and the answers that the driver allows.
    pub expect: Vec<Expectation>,
    /// Place where the changes of the command are when the sandbox has ended.
    pub changes: ChangeSource,
    /// The processes of the sandbox, seen from the host.
    pub process: Box<dyn SandboxProcess + Send>,
}

/// Place where the changes of a command are when its sandbox has ended.
#[derive(Debug)]
pub enum ChangeSource {
    /// There is no layer: the command writes to the workspace itself.
    None,
    /// In the directory of the layer that the plan names.
    Directory,
    /// In a directory that has no name on the host. `None`: its descriptor comes as [`crate::Event::Layer`].
    Descriptor(Option<OwnedFd>),
}

impl ChangeSource {
    /// Reports whether the driver had the descriptor of the directory with the changes at the start.
    #[must_use]
    pub fn has_descriptor(&self) -> bool {
        matches!(self, Self::Descriptor(Some(_)))
    }

    /// Returns the descriptor of the directory with the changes, where the driver had it at the start.
    #[must_use]
    pub fn into_descriptor(self) -> Option<OwnedFd> {
        match self {
            Self::None | Self::Directory => None,
            Self::Descriptor(descriptor) => descriptor,
        }
    }
}

/// The processes of a sandbox, seen from the host.
pub trait SandboxProcess {
    /// Kills everything inside.
    fn kill(&self) -> io::Result<()>;
    /// Kills each process inside on its own. Required of a driver whose sandbox dies with one process: that one may be frozen,
    /// and [`SandboxProcess::kill`] is then not enough. The default is right only if `kill` cannot be held up from inside.
    fn kill_members(&self) -> io::Result<()> {
        Ok(())
    }
    /// Takes away the limits that would delay the death of what the end of the main command kills. Required of a driver that
    /// slows the processes inside (a limit of the processor, for instance). The default is right only if none does.
    fn hurry(&self) {}
    /// Releases what only the set-up needed. Call it when the sandbox stands; it may take milliseconds, which are free
    /// while the command starts.
    fn on_ready(&self) {}
    /// Waits until everything inside is dead. Call it once.
    fn wait(&self) -> io::Result<()>;
    /// Waits until the kernel has taken the overlay of the workspace apart, so that no process can change the layer any
    /// more. Call it after `wait`. `false`: some process may still have a part of it, or the driver cannot know. The default
    /// is right for every driver, but has a price: what may still be open in the layer is copied before each commit.
    fn has_released_layer(&self, _within: Duration) -> bool {
        false
    }
    /// Removes what the sandbox has on the host beside its processes, after `wait`.
    fn release(&self) -> io::Result<()>;
    /// Becomes readable when the sandbox is dead.
    fn ended(&self) -> Option<BorrowedFd<'_>>;
    /// Returns the number of times that the kernel killed a process inside for memory.
    fn oom_kills(&self) -> io::Result<u64>;
}

/// One thing on this host that bears the label of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Description for a person, such as `process nx-84affa53de02 4711`.
    pub what: String,
    /// End of the id of the run, as far as the label holds it.
    pub run: String,
}

impl Found {
    /// Reports whether this is of a run.
    #[must_use]
    pub fn is_of(&self, run: RunId) -> bool {
        !self.run.is_empty() && run.to_string().ends_with(&self.run)
    }
}
