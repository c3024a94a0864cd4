//! The launcher's half: everything before the clone, and what only a parent may do after it.
//!
//! ```text
//!  check one thread ─▶ own keyring ─▶ (root: idmapped mounts, overlay) ─▶ cgroup ─▶ clone3 ─▶ (root: id maps; v1: enter) ─▶ go
//! ```
//! Mounts made here are never attached to the host: they are descriptors, and vanish with this process.

use crate::cgroup::Group;
use crate::child;
use crate::clone::{Child, Cloned, clone_process, exit_now};
use crate::identity::Identity;
use crate::mounts::{self, Depth, NODEV, NOSUID};
use crate::rootfs::show;
use crate::seccomp;
use crate::steps::{AtStep, Faults, Step, StepError};
use crate::{idmap, overlay};
use nexus_model::Plan;
use nexus_model::frames::GuestFrame;
use nexus_model::plan::{Access, Writes};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// One sandbox to start.
pub struct Request<'a> {
    /// What it is.
    pub plan: &'a Plan,
    /// Its ids.
    pub identity: Identity,
    /// Its filter.
    pub filter: &'a seccomp::Program,
    /// The kernel's Landlock version.
    pub landlock_abi: i32,
    /// Its control group, if it needs one.
    pub group: Option<&'a Group>,
    /// Which step a test wants to fail.
    pub faults: Faults,
    /// What PID 1 does with the channel once the sandbox stands; its result is the exit code.
    pub guest: fn(OwnedFd) -> i32,
    /// How a frame, and descriptors with it, are sent to the host.
    pub report: fn(&OwnedFd, &GuestFrame, &[BorrowedFd<'_>]) -> io::Result<()>,
}

impl Request<'_> {
    /// Whether the child has to wait for something that only its parent may do.
    pub(crate) fn parent_acts(&self) -> bool {
        self.identity.by_root || self.group.is_some()
    }
}

/// Mounts that only root can make, made before the clone.
#[derive(Default)]
pub struct Prepared {
    pub(crate) workspace: Option<OwnedFd>,
    pub(crate) binds: Vec<OwnedFd>,
    /// The upper folder of a layer in memory.
    upper: Option<OwnedFd>,
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
}

const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// Starts a sandbox. On an error nothing of it is left but the control group, which the caller removes by its name.
pub fn launch(request: &Request<'_>) -> Result<Launched, StepError> {
    let faults = request.faults;
    check_single_thread(faults)?;
    join_keyring(faults)?;
    faults.check(Step::MakeChannel)?;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .at(Step::MakeChannel, "socketpair")?;
    let mut prepared = if request.identity.by_root { prepare_as_root(request)? } else { Prepared::default() };
    let upper = prepared.upper.take();
    let mut target = None;
    if let Some(group) = request.group {
        group.make(&request.plan.limits, faults)?;
        target = group.clone_target(faults)?;
    }
    faults.check(Step::Clone)?;
    let child = match clone_process(NAMESPACES, target.as_ref()).at(Step::Clone, "clone3 with new namespaces")? {
        Cloned::Child => {
            drop(ours);
            // A panic must not run on in a copy of the caller.
            let run = std::panic::AssertUnwindSafe(|| child::run(request, prepared, theirs));
            exit_now(std::panic::catch_unwind(run).unwrap_or(101));
        }
        Cloned::Parent(child) => child,
    };
    drop(theirs);
    if let Err(error) = finish_as_parent(request, &child, &ours) {
        child.kill().at(Step::Clone, "ending a child that could not be finished")?;
        child.wait().at(Step::Clone, "ending a child that could not be finished")?;
        return Err(error);
    }
    Ok(Launched { child, channel: ours, upper })
}

fn finish_as_parent(request: &Request<'_>, child: &Child, channel: &OwnedFd) -> Result<(), StepError> {
    if !request.parent_acts() {
        return Ok(());
    }
    let pid = child.pid.as_raw_nonzero().get();
    if let Some(group) = request.group {
        group.enter(pid, request.faults)?;
    }
    if request.identity.by_root {
        request.faults.check(Step::WriteIdMap)?;
        child::write_maps(pid, &request.identity).at(Step::WriteIdMap, "uid_map of the child")?;
    }
    let sent = rustix::net::send(channel, b"g", rustix::net::SendFlags::NOSIGNAL);
    sent.at(Step::AwaitParent, "channel")?;
    Ok(())
}

/// A clone without exec copies one thread; any other would leave its locks held for ever.
fn check_single_thread(faults: Faults) -> Result<(), StepError> {
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

/// Leaves the caller's session keyring for one that all sandboxes of this user share and that stays empty: the
/// keyctl family is refused inside. One for each sandbox would hit the quota of 200 keys (keyrings(7)).
fn join_keyring(faults: Faults) -> Result<(), StepError> {
    faults.check(Step::JoinKeyring)?;
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: the name is a C string; the call only changes which session keyring this process has.
    let result = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, c"nexus-sandboxes".as_ptr()) };
    let error = io::Error::last_os_error();
    // A kernel without keyrings has none to leak.
    if result >= 0 || error.raw_os_error() == Some(libc::ENOSYS) {
        Ok(())
    } else {
        Err(StepError::os(Step::JoinKeyring, error, "an empty session keyring"))
    }
}

fn prepare_as_root(request: &Request<'_>) -> Result<Prepared, StepError> {
    let faults = request.faults;
    let mut maps = IdMaps { known: Vec::new(), identity: request.identity, faults };
    let workspace = &request.plan.workspace;
    let source = workspace.source.as_path();
    faults.check(Step::IdMappedMounts)?;
    let lower = maps.mount(source, NOSUID | NODEV).at(Step::IdMappedMounts, &show(source))?;
    let (mount, upper) = match &workspace.writes {
        Writes::Direct { .. } => (lower, None),
        Writes::Layer { root } => {
            let root = root.as_path();
            let layer = maps.mount_for(root, source, NOSUID | NODEV).at(Step::IdMappedMounts, &show(root))?;
            (root_overlay(request, &lower, &layer)?, None)
        }
        Writes::MemoryLayer { bytes } => {
            faults.check(Step::MountLayer)?;
            let (layer, upper) = memory_layer(&mut maps, *bytes, source).at(Step::MountLayer, "a layer in memory")?;
            (root_overlay(request, &lower, &layer)?, Some(upper))
        }
    };
    let mut binds = Vec::with_capacity(request.plan.binds.len());
    for bind in &request.plan.binds {
        let attributes = child::bind_attributes(bind.access);
        let path = bind.source.as_path();
        let mount = match maps.mount(path, attributes) {
            // A file system that cannot map owners may still be looked at.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && bind.access == Access::ReadOnly => {
                crate::rootfs::open_source(path, attributes)
            }
            other => other,
        };
        binds.push(mount.at(Step::IdMappedMounts, &show(path))?);
    }
    Ok(Prepared { workspace: Some(mount), binds, upper })
}

fn root_overlay(request: &Request<'_>, lower: &OwnedFd, layer: &OwnedFd) -> Result<OwnedFd, StepError> {
    request.faults.check(Step::RootOverlay)?;
    let open = |name: &str| mounts::place(layer, Path::new(name)).at(Step::RootOverlay, name);
    let (upper, work) = (open("upper")?, open("work")?);
    let parts = overlay::Parts { lower, upper: &upper, work: &work };
    overlay::as_root(&parts, &request.identity).at(Step::RootOverlay, "the overlay of the workspace")
}

fn memory_layer(maps: &mut IdMaps, bytes: u64, workspace: &Path) -> io::Result<(OwnedFd, OwnedFd)> {
    let plain = child::memory_filesystem(bytes)?;
    let owner = std::fs::metadata(workspace)?;
    let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid()), rustix::fs::Gid::from_raw(owner.gid()));
    for name in ["upper", "work"] {
        rustix::fs::mkdirat(&plain, name, Mode::from_raw_mode(0o755))?;
        rustix::fs::chownat(&plain, name, Some(uid), Some(gid), rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(&plain, c"upper", flags, Mode::empty())?;
    let userns = maps.namespace(owner.uid(), owner.gid())?;
    // A mount that has an opened folder cannot get a map: this one is new, and the map comes before any use.
    let mapped = mounts::open_tree_fd(&plain, Depth::One)?;
    mounts::set_idmap(&mapped, userns, NOSUID | NODEV, Depth::One)?;
    Ok((mapped, upper))
}

/// One user namespace for each owner among the host paths of a sandbox.
struct IdMaps {
    known: Vec<((u32, u32), OwnedFd)>,
    identity: Identity,
    faults: Faults,
}

impl IdMaps {
    fn namespace(&mut self, uid: u32, gid: u32) -> io::Result<&OwnedFd> {
        let found = self.known.iter().position(|(owner, _)| *owner == (uid, gid));
        let index = if let Some(index) = found {
            index
        } else {
            let to = (self.identity.outer_uid, self.identity.outer_gid);
            let made = self.faults.check(Step::IdMapNamespace).and_then(|()| {
                idmap::namespace(uid, gid, to).at(Step::IdMapNamespace, "a user namespace that maps file owners")
            });
            // Travels inside the io::Error, so that `at` of the caller keeps the step that really failed.
            self.known.push(((uid, gid), made.map_err(io::Error::other)?));
            self.known.len() - 1
        };
        Ok(&self.known[index].1)
    }

    /// A host path with its owner shown as the sandbox's user.
    fn mount(&mut self, path: &Path, attributes: u64) -> io::Result<OwnedFd> {
        self.mount_for(path, path, attributes)
    }

    /// The same, with the owner of another path.
    fn mount_for(&mut self, path: &Path, owner: &Path, attributes: u64) -> io::Result<OwnedFd> {
        let owner = rustix::fs::fstat(mounts::open_canonical(owner)?)?;
        let mount = mounts::open_tree_fd(mounts::open_canonical(path)?, Depth::Recursive)?;
        let userns = self.namespace(owner.st_uid, owner.st_gid)?;
        mounts::set_idmap(&mount, userns.as_fd(), attributes, Depth::Recursive)?;
        Ok(mount)
    }
}

/// Inode numbers of this process's namespaces, by name.
pub fn host_namespaces() -> io::Result<Vec<(String, u64)>> {
    ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]
        .iter()
        .map(|name| Ok(((*name).to_owned(), std::fs::metadata(Path::new("/proc/self/ns").join(name))?.ino())))
        .collect()
}
