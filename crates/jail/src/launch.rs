//! The launcher's half: everything before the clone, and what only a parent may do after it.
//!
//! ```text
//!  check one thread ─▶ own keyring ─▶ (root or workshop: workspace, binds) ─▶ cgroup ─▶ (workshop: into the template)
//!      ─▶ clone3 ─▶ (workshop: back home) ─▶ (id maps; v1: enter) ─▶ go
//! ```
//! Mounts made here are never attached to the host: they are descriptors, and vanish with this process.

use crate::begun::Begun;
use crate::cgroup::Group;
use crate::child::{self, Here};
use crate::clone::{Child, Cloned, clone_process, exit_now};
use crate::creds;
use crate::identity::Identity;
use crate::kept::{Inside, Kept};
use crate::keyring;
use crate::leave_out::{Wall, stands};
use crate::netpool::Network;
use crate::prepare::{self, Prepared};
use crate::quotas::Quotas;
use crate::steps::{AtStep, Faults, Step, StepError};
use crate::watch;
use nexus_model::Plan;
use nexus_model::frames::GuestFrame;
use nexus_model::plan::Writes;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::MetadataExt;
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

/// A sandbox that is coming up. What comes next on the channel says whether it did.
#[derive(Debug)]
pub struct Launched {
    /// PID 1 as the host sees it.
    pub child: Child,
    /// The host's end of the guest channel.
    pub channel: OwnedFd,
    /// The upper folder of a layer in memory, when the launcher made it.
    pub upper: Option<OwnedFd>,
    /// The pooled network that it has; for [`Kept::give_back`] once its first process was waited for.
    pub network: Option<Network>,
    /// Tells when the workspace's overlay is gone for good; for [`crate::watch::overlay_is_gone`]. None from a workshop, which
    /// keeps mounts of dead sandboxes for a while.
    pub watch: Option<OwnedFd>,
    /// To be closed when nobody waits: mounts of which the kernel waits for all processors then.
    pub spent: Vec<OwnedFd>,
}

const NAMESPACES: u64 = (libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;

/// Starts a sandbox. On an error nothing of it is left but the control group, which the caller removes by its name.
pub fn launch(request: &Request<'_>, kept: &mut Kept) -> Result<Launched, StepError> {
    let setup = &request.setup;
    let faults = setup.faults;
    check_single_thread(faults)?;
    join_keyring(faults, kept)?;
    let is_layered = !matches!(request.plan.workspace.writes, Writes::Direct { .. });
    let watch = (is_layered && !kept.is_workshop()).then(watch::instance).flatten();
    let mut prepared = prepare::prepare(request, kept, watch.as_ref())?;
    // The child has the same instance by the clone, and watches what it mounts itself.
    let mounts_inside = prepared.workspace.is_none();
    let watch_inside = watch.as_ref().filter(|_| mounts_inside).and_then(|watch| watch.try_clone().ok());
    let (upper, spent) = (prepared.upper.take(), std::mem::take(&mut prepared.spent));
    let mut target = None;
    if let Some(group) = request.group {
        group.make(&request.plan.limits, faults)?;
        target = group.clone_target(faults)?;
    }
    faults.check(Step::Clone)?;
    // One that needs a group has to be in it from its beginning: that becomes what it sees of the hierarchy.
    if request.group.is_none()
        && let Some(begun) = kept.take_begun(request.plan)?
    {
        match begun.order(request.plan, &prepared) {
            Ok(()) => {
                let Begun { child, channel, network, .. } = begun;
                return Ok(Launched { child, channel, upper, network, watch, spent });
            }
            // It has just died. Nothing was lost: the mounts are still here.
            Err(_) => begun.end().at(Step::Clone, "ending a sandbox that took no order")?,
        }
    }
    let (ours, theirs) = channel(faults)?;
    let (strings, quotas) = (kept.strings()?, kept.quotas()?);
    let maps = prepared.workspace.is_some();
    let parent_acts = maps || request.group.is_some();
    let cloned = kept.enter(request.plan, faults).and_then(|inside| {
        let Inside { on_template, network } = inside;
        let own_network = network.is_none();
        let here = Here { on_template, own_network, strings, parent_acts, quotas: Rc::clone(&quotas) };
        let start = Start { here, prepared, watch: watch_inside, channel: theirs };
        let run = move || child::run(request, start);
        clone_inside(&setup.identity, own_network, &ours, target.as_ref(), run).map(|child| (child, network))
    });
    let (child, network) = match cloned {
        Ok(cloned) => cloned,
        Err(error) => return kept.leave().and(Err(error)),
    };
    let back = kept.leave();
    let maps = maps.then_some(&*quotas);
    let finished = back
        .and_then(|()| if parent_acts { finish_as_parent(setup, request.group, &child, &ours, maps) } else { Ok(()) });
    if let Err(error) = finished {
        child.kill().at(Step::Clone, "ending a child that could not be finished")?;
        child.wait().at(Step::Clone, "ending a child that could not be finished")?;
        return Err(error);
    }
    Ok(Launched { child, channel: ours, upper, network, watch, spent })
}

/// The socket between host and guest: the host's end, the guest's.
pub(crate) fn channel(faults: Faults) -> Result<(OwnedFd, OwnedFd), StepError> {
    faults.check(Step::MakeChannel)?;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .at(Step::MakeChannel, "socketpair")
}

/// What the child takes along.
pub(crate) struct Start {
    /// Where it begins.
    pub here: Here,
    /// What of the host is open already.
    pub prepared: Prepared,
    /// By which an overlay that it mounts is watched.
    pub watch: Option<OwnedFd>,
    /// The guest's end.
    pub channel: OwnedFd,
}

/// Clones a child that does `run` and ends with its result. `ours` is what it must not have.
pub(crate) fn clone_inside(
    identity: &Identity,
    own_network: bool,
    ours: &OwnedFd,
    cgroup: Option<&OwnedFd>,
    run: impl FnOnce() -> i32,
) -> Result<Child, StepError> {
    let network = own_network && stands(Wall::NetworkNamespace);
    let apart = [
        (network, libc::CLONE_NEWNET),
        (stands(Wall::IpcNamespace), libc::CLONE_NEWIPC),
        (stands(Wall::UtsNamespace), libc::CLONE_NEWUTS),
    ];
    let apart = apart.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, flag)| all | *flag as u64);
    let cloned = as_owner(identity, || clone_process(NAMESPACES | apart, cgroup));
    match cloned.at(Step::Clone, "clone3 with new namespaces")? {
        Cloned::Child => {
            // The host's end; the one who owns it in this copy never runs again.
            // SAFETY: a plain close of a descriptor that nothing in this process uses from here on.
            unsafe { libc::close(ours.as_raw_fd()) };
            // A panic must not run on in a copy of the caller.
            exit_now(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or(101));
        }
        Cloned::Parent(child) => Ok(child),
    }
}

/// Clones with the effective uid of the sandbox, where root launches: the creator of a user namespace pays in its own one for
/// what is counted in it, and root's limits are the host's services'.
fn as_owner(identity: &Identity, clone: impl FnOnce() -> io::Result<Cloned>) -> io::Result<Cloned> {
    if !identity.by_root {
        return clone();
    }
    let before = creds::take_effective_uid(identity.outer_uid)?;
    let cloned = clone();
    match cloned {
        // Its user namespace has given it all rights there, and it takes its ids by itself.
        Ok(Cloned::Child) => cloned,
        cloned => creds::give_back_effective_uid(before).and(cloned),
    }
}

/// The child waits for this: it is in its group, and has its ids. `maps` is there where it does not map them itself.
pub(crate) fn finish_as_parent(
    setup: &Setup,
    group: Option<&Group>,
    child: &Child,
    channel: &OwnedFd,
    maps: Option<&Quotas>,
) -> Result<(), StepError> {
    let pid = child.pid.as_raw_nonzero().get();
    if let Some(group) = group {
        group.enter(pid, setup.faults)?;
    }
    if let Some(quotas) = maps {
        setup.faults.check(Step::WriteIdMap)?;
        child::write_maps(pid, &setup.identity).at(Step::WriteIdMap, "uid_map of the child")?;
        quotas.take_protection(pid)?;
    }
    let sent = rustix::net::send(channel, b"g", rustix::net::SendFlags::NOSIGNAL);
    sent.at(Step::AwaitParent, "channel")?;
    Ok(())
}

/// A clone without exec copies one thread; any other would leave its locks held for ever.
pub(crate) fn check_single_thread(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::SingleThread)?;
    let tasks = std::fs::metadata("/proc/self/task").at(Step::SingleThread, "/proc/self/task")?;
    match tasks.nlink() {
        // A folder has two links and one for each subfolder.
        3 => Ok(()),
        links => {
            Err(StepError::new(Step::SingleThread, format!("the launcher has {} threads", links.saturating_sub(2))))
        }
    }
}

/// Leaves the caller's session keyring, once in the life of a launcher.
fn join_keyring(faults: Faults, kept: &mut Kept) -> Result<(), StepError> {
    if !kept.has_keyring && stands(Wall::Keyring) {
        keyring::join(faults)?;
        kept.has_keyring = true;
    }
    faults.check(Step::JoinKeyring)
}

/// Inode numbers of this process's namespaces, by name.
pub fn host_namespaces() -> io::Result<Vec<(String, u64)>> {
    ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]
        .iter()
        .map(|name| Ok(((*name).to_owned(), std::fs::metadata(Path::new("/proc/self/ns").join(name))?.ino())))
        .collect()
}
