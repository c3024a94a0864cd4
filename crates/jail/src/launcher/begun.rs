//! Sandboxes begun in advance: what does not depend on a plan is done while nobody waits.
//!
//! ```text
//!  (launcher idle) ─clone─▶ names, ids, root, /proc ─▶ waits ──order(plan, mounts)──▶ workspace, binds, seal ─▶ guest
//!                                                        └─▶ template not current, launcher gone: ends
//! ```
//! Each serves one sandbox and is in nothing different from one that is begun when it is wanted, only earlier. Nothing of
//! any plan is in it, and nothing of the host but the template: the workspace and the binds are opened when the order
//! comes, so that they are what the paths mean then. It runs no code but this, and its channel is its only descriptor
//! beside its root.

use crate::clone::Child;
use crate::launcher::netpool::Network;
use crate::order;
use crate::request::Prepared;
use nexus_model::Plan;
use nexus_model::network;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;

/// One that waits for its order.
#[derive(Debug)]
pub struct Begun {
    /// PID 1 of it.
    pub child: Child,
    /// The host's end of its channel.
    pub channel: OwnedFd,
    /// The pooled network that it has; else it has its own.
    pub network: Option<Network>,
    pub(super) scratch_bytes: u64,
}

impl Begun {
    /// Whether it is what this plan needs.
    pub fn fits(&self, plan: &Plan) -> bool {
        // What leads to an egress is made in the sandbox's own network, by the sandbox, with the rest of what only it has.
        let network = match plan.network {
            network::Network::None => true,
            network::Network::Egress | network::Network::EgressByProgram => false,
        };
        network && self.scratch_bytes == plan.limits.scratch_bytes && plan.binds.len() < order::MOST
    }

    /// Whether it still waits. One that says something unasked has failed, or is dead.
    pub fn is_waiting(&self) -> io::Result<bool> {
        let mut wait = [PollFd::new(&self.channel, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut wait, Some(&Timespec::default())))? == 0)
    }

    /// Gives it its order. What it says next on its channel is for whoever wants the sandbox.
    pub fn order(&self, plan: &Plan, prepared: &Prepared) -> io::Result<()> {
        let workspace = prepared.workspace.iter();
        let mounts: Vec<_> = workspace.chain(prepared.binds.iter().flatten()).map(AsFd::as_fd).collect();
        order::send(&self.channel, plan, &mounts)
    }

    /// Ends it.
    pub fn end(self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}
