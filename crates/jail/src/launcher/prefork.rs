//! Warm sandboxes: everything that does not depend on a plan is done before a request comes.
//!
//! ```text
//!  (launcher idle) ─clone─▶ names, ids, root, /proc ─▶ waits ──message(plan, mounts)─▶ workspace, binds, seal ─▶ guest
//!                                                        └─▶ template not current, launcher gone: ends
//! ```
//! Each serves one run. It is made earlier, and is otherwise like a sandbox that is made for its plan. Nothing of any plan
//! is in it, and nothing of the host but the template: the workspace and the binds are opened when the plan comes, so that
//! they are what the paths mean then. It runs no code but this, and its channel is its only descriptor beside its root.

use crate::clone::{Child, GONE_WITHIN};
use crate::identity::Identity;
use crate::launch_message;
use crate::launcher::netpool::Network;
use crate::request::Prepared;
use nexus_model::Plan;
use nexus_model::network;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::time::Instant;

/// One that waits for its order.
#[derive(Debug)]
pub struct WarmSandbox {
    /// PID 1 of it.
    pub child: Child,
    /// The host's end of its channel.
    pub channel: OwnedFd,
    /// The pooled network that it has; else it has its own.
    pub network: Option<Network>,
    /// Its ids, for which the mounts of the host have to be made.
    pub identity: Identity,
    pub(super) scratch_bytes: u64,
}

impl WarmSandbox {
    /// Returns whether it has the network and the size that this plan needs.
    pub fn fits(&self, plan: &Plan) -> bool {
        // What leads to an egress is made in the sandbox's own network, by the sandbox: in a pooled one it has no rights.
        let network = match plan.network {
            network::Network::None => true,
            network::Network::Egress | network::Network::EgressByProgram => self.network.is_none(),
        };
        // Descriptors by which such directories are listed again are not sent.
        let is_listed = plan.second_search.as_ref().is_none_or(|search| search.entered.is_empty());
        network
            && self.scratch_bytes == plan.limits.scratch_bytes
            && plan.binds.len() < launch_message::MAX
            && (is_listed || !self.identity.by_root)
    }

    /// Returns whether it still waits. One that says something unasked has failed, or is dead.
    pub fn is_waiting(&self) -> io::Result<bool> {
        let mut wait = [PollFd::new(&self.channel, PollFlags::IN)];
        Ok(rustix::io::retry_on_intr(|| poll(&mut wait, Some(&Timespec::default())))? == 0)
    }

    /// Sends it its plan. The next frames on its channel are for the host.
    pub fn send_plan(&self, plan: &Plan, prepared: &Prepared) -> io::Result<()> {
        let workspace = prepared.workspace.iter();
        let mounts: Vec<_> = workspace.chain(prepared.binds.iter().flatten()).map(AsFd::as_fd).collect();
        launch_message::send(&self.channel, plan, prepared.numbers, &mounts)
    }

    /// Kills the first processes of these and waits for them, at most [`GONE_WITHIN`] for all together. One that the kernel
    /// keeps longer runs nothing and has nothing of a plan, so that no launch waits for it: the launcher collects it with its
    /// other children when it has ended.
    pub fn end(all: &[Self]) -> io::Result<()> {
        all.iter().try_for_each(|warm| warm.child.kill())?;
        let until = Instant::now() + GONE_WITHIN;
        all.iter().try_for_each(|warm| warm.child.wait_until(until).map(drop))
    }
}
