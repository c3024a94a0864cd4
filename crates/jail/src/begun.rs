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

use crate::child;
use crate::clone::Child;
use crate::kept::Kept;
use crate::launch::{self, Setup};
use crate::netpool::Network;
use crate::order;
use crate::prepare::Prepared;
use crate::steps::{AtStep, Step, StepError};
use nexus_model::Plan;
use nexus_model::network;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
use std::rc::Rc;

/// One that waits for its order.
#[derive(Debug)]
pub struct Begun {
    /// PID 1 of it.
    pub child: Child,
    /// The host's end of its channel.
    pub channel: OwnedFd,
    /// The pooled network that it has; else it has its own.
    pub network: Option<Network>,
    scratch_bytes: u64,
}

impl Begun {
    /// Begins one on the template of a workshop.
    pub fn make(setup: &Setup, kept: &mut Kept, scratch_bytes: u64) -> Result<Self, StepError> {
        launch::check_single_thread(setup.faults)?;
        let (channel, theirs) = launch::channel(setup.faults)?;
        let (strings, quotas) = (kept.strings()?, kept.quotas()?);
        let cloned = kept.enter_at(true, Some(&[]), setup.faults).and_then(|inside| {
            let own_network = inside.network.is_none();
            let here =
                child::Here { on_template: true, own_network, strings, parent_acts: true, quotas: Rc::clone(&quotas) };
            let run = move || child::run_begun(setup, &here, scratch_bytes, theirs);
            launch::clone_inside(&setup.identity, own_network, &channel, None, run).map(|child| (child, inside.network))
        });
        let back = kept.leave();
        let (child, network) = cloned?;
        let begun = Self { child, channel, network, scratch_bytes };
        match back.and_then(|()| launch::finish_as_parent(setup, None, &begun.child, &begun.channel, Some(&*quotas))) {
            Ok(()) => Ok(begun),
            Err(error) => {
                begun.end().at(Step::Clone, "ending a sandbox that could not be begun")?;
                Err(error)
            }
        }
    }

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
