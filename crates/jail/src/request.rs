//! Requests to a launcher, and the values that it hands to the child that becomes the sandbox; for both halves.

use crate::cgroup::Group;
use crate::identity::Identity;
use crate::quotas::Quotas;
use crate::steps::Faults;
use nexus_channel::frames::GuestFrame;
use nexus_model::Plan;
use nexus_model::moving::Numbers;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Settings that all sandboxes of a launcher have in common.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Ids of the sandboxes.
    pub identity: Identity,
    /// The kernel's Landlock version.
    pub landlock_abi: i32,
    /// Step that a test makes fail.
    pub faults: Faults,
    /// Runs PID 1 with the channel once the sandbox stands; its result is the exit code. Where the overlay of the workspace does not
    /// move directories, PID 1 has to, and gets what tells the files in them apart.
    pub guest: fn(OwnedFd, Option<Numbers>) -> i32,
    /// Sends a frame, and descriptors with it, to the host.
    pub report: fn(&OwnedFd, &GuestFrame, &[BorrowedFd<'_>]) -> io::Result<()>,
}

/// One sandbox to start.
pub struct Request<'a> {
    /// Plan of the sandbox.
    pub plan: &'a Plan,
    /// Settings that it shares with other sandboxes.
    pub setup: Setup,
    /// Its control group, if it needs one.
    pub group: Option<&'a Group>,
}

/// Mounts made before the clone.
#[derive(Default)]
pub struct Prepared {
    pub(crate) workspace: Option<OwnedFd>,
    /// The numbers by which the files of the workspace are distinct.
    pub(crate) numbers: Numbers,
    pub(crate) binds: Option<Vec<OwnedFd>>,
    /// The root of an image.
    pub(crate) image: Option<OwnedFd>,
    /// The upper directory of a layer in memory.
    pub(crate) upper: Option<OwnedFd>,
    /// Mounts that have done their part. The kernel waits for all processors when one is closed for good.
    pub(crate) deferred: Vec<OwnedFd>,
    /// Directories of the host whose names the command may use and not list, open for a list.
    pub(crate) lists: Vec<OwnedFd>,
}

/// Values that the child takes along.
pub struct Start {
    /// Surroundings in which the child begins.
    pub here: Here,
    /// Mounts of the host that are open already.
    pub prepared: Prepared,
    /// By which an overlay that it mounts is watched.
    pub watch: Option<OwnedFd>,
    /// The guest's end.
    pub channel: OwnedFd,
}

/// Surroundings in which a child began.
pub struct Here {
    /// Set when it is on a template.
    pub on_template: bool,
    /// Set when its network is its own, and still down.
    pub own_network: bool,
    /// Arguments and environment in its memory.
    pub strings: [Range<usize>; 2],
    /// Set when it has to wait for an act that only its parent may do.
    pub parent_acts: bool,
    /// Shares of the quotas that the kernel counts for its user.
    pub quotas: Arc<Quotas>,
}

/// The places inside that a plan asks for.
pub fn targets(plan: &Plan) -> Vec<&Path> {
    std::iter::once(&plan.workspace.target)
        .chain(plan.binds.iter().map(|bind| &bind.target))
        .chain(&plan.private)
        .map(nexus_model::ByteText::as_path)
        .collect()
}
