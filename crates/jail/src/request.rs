//! What a launcher is asked for, and what it hands to the child that becomes the sandbox: values alone, for both halves.

use crate::cgroup::Group;
use crate::identity::Identity;
use crate::quotas::Quotas;
use crate::steps::Faults;
use nexus_model::Plan;
use nexus_model::frames::GuestFrame;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// What all sandboxes of a launcher have in common.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Their ids.
    pub identity: Identity,
    /// The kernel's Landlock version.
    pub landlock_abi: i32,
    /// Which step a test wants to fail.
    pub faults: Faults,
    /// What PID 1 does with the channel once the sandbox stands; its result is the exit code.
    pub guest: fn(OwnedFd) -> i32,
    /// How a frame, and descriptors with it, are sent to the host.
    pub report: fn(&OwnedFd, &GuestFrame, &[BorrowedFd<'_>]) -> io::Result<()>,
}

/// One sandbox to start.
pub struct Request<'a> {
    /// What it is.
    pub plan: &'a Plan,
    /// What it shares with others.
    pub setup: Setup,
    /// Its control group, if it needs one.
    pub group: Option<&'a Group>,
}

/// Mounts made before the clone.
#[derive(Default)]
pub struct Prepared {
    pub(crate) workspace: Option<OwnedFd>,
    pub(crate) binds: Option<Vec<OwnedFd>>,
    /// The upper folder of a layer in memory.
    pub(crate) upper: Option<OwnedFd>,
    /// Mounts that have done their part. The kernel waits for all processors when one is closed for good.
    pub(crate) spent: Vec<OwnedFd>,
}

/// What the child takes along.
pub struct Start {
    /// Where it begins.
    pub here: Here,
    /// What of the host is open already.
    pub prepared: Prepared,
    /// By which an overlay that it mounts is watched.
    pub watch: Option<OwnedFd>,
    /// The guest's end.
    pub channel: OwnedFd,
}

/// Where this child began.
pub struct Here {
    /// Whether it is on a template.
    pub on_template: bool,
    /// Whether its network is its own, and still down.
    pub own_network: bool,
    /// Arguments and environment in its memory.
    pub strings: [Range<usize>; 2],
    /// Whether it has to wait for something that only its parent may do.
    pub parent_acts: bool,
    /// What it may take of what the kernel counts for its user.
    pub quotas: Rc<Quotas>,
}

/// The places inside that a plan asks for.
pub fn targets(plan: &Plan) -> Vec<&Path> {
    std::iter::once(&plan.workspace.target)
        .chain(plan.binds.iter().map(|bind| &bind.target))
        .map(nexus_model::ByteText::as_path)
        .collect()
}
