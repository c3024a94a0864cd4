//! The child's half of a launch: from the first instruction in new namespaces to the guest.
//!
//! ```text
//!  clone3 ─▶ session, names, loopback ─▶ ids ─┬─▶ open host paths ─▶ private root with the system ─┬─▶ /proc, workspace, binds
//!                                            └─▶ (on a template both are done) ───────────────────┘
//!        ─▶ (pivot, drop the host) ─▶ limits ─▶ close ─▶ no rights ─▶ die with parent ─▶ Landlock ─▶ seccomp ─▶ guest
//! ```
//! One that is begun in advance (`begun`) does all that needs no plan, and waits for it before `workspace`.
//! Any error on the way is told to the host as one frame, and the process ends: there is no "best effort".

use crate::cgroup::Group;
use crate::identity::Identity;
use crate::launch::{Request, Setup, Start};
use crate::leave_out::{Wall, stands};
use crate::mounts::{self, Depth, NODEV, NOEXEC, NOSUID, RDONLY};
use crate::places::{self, below_root, show};
use crate::prepare::Prepared;
use crate::quotas::Quotas;
use crate::rootfs::{self, Root};
use crate::steps::{AtStep, Faults, Step, StepError};
use crate::{creds, idmap, kept, memory, net, order, overlay, seccomp, system, walls, watch};
use nexus_model::frames::{GuestFrame, LISTENERS};
use nexus_model::network::Network;
use nexus_model::plan::{Access, Writes};
use nexus_model::{ByteText, Plan};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Sets the sandbox up and becomes its guest. Returns the code to end with.
pub fn run(request: &Request<'_>, start: Start) -> i32 {
    let Start { here, channel, prepared, watch } = start;
    let done = set_up(request, &here, prepared, watch, &channel);
    become_guest(&request.setup, channel, done)
}

/// The same for one that is begun in advance.
pub fn run_begun(setup: &Setup, here: &Here, scratch_bytes: u64, channel: OwnedFd) -> i32 {
    let done = set_up_begun(setup, here, scratch_bytes, &channel);
    become_guest(setup, channel, done)
}

fn become_guest(setup: &Setup, channel: OwnedFd, done: Result<OwnedFd, StepError>) -> i32 {
    match done {
        Ok(channel_now) => {
            // The descriptor has moved to its place; the old number is closed already.
            std::mem::forget(channel);
            (setup.guest)(channel_now)
        }
        Err(error) => {
            let frame = GuestFrame::SetupFailed {
                step: error.step.name().to_owned(),
                errno: error.errno,
                detail: error.detail,
            };
            // If even this cannot be said, the end of the channel says that no sandbox came up.
            i32::from((setup.report)(&channel, &frame, &[]).is_err()) + 1
        }
    }
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

fn set_up(
    request: &Request<'_>,
    here: &Here,
    prepared: Prepared,
    watch: Option<OwnedFd>,
    channel: &OwnedFd,
) -> Result<OwnedFd, StepError> {
    let setup = &request.setup;
    let faults = setup.faults;
    let plan = request.plan;
    // The modes of what is made here are not the caller's choice; the command gets the caller's mask back.
    let mask = rustix::process::umask(Mode::empty());
    // First what needs no ids: the parent writes them meanwhile. If it fails the parent is still awaited: it would not
    // get at a child that is gone, and report that instead.
    let named = take_mark(request).and_then(|()| names_and_devices(setup, here));
    await_parent(setup, here, channel)?;
    named?;
    take_ids(setup, here)?;
    connect_to_egress(request, here, channel)?;

    let root = if here.on_template {
        let workspace = open_workspace(request, prepared.workspace, watch)?;
        let binds = open_binds(request, prepared.binds)?;
        let root = Root::on_template(faults, plan.limits.scratch_bytes)?;
        root.dress(faults)?;
        furnish(request, root, workspace, binds, channel)
    } else {
        faults.check(Step::PrivateMounts)?;
        let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private).at(Step::PrivateMounts, "/")?;
        let system = system::open(faults)?;
        let workspace = open_workspace(request, prepared.workspace, watch)?;
        let binds = open_binds(request, prepared.binds)?;
        let limits = open_limits(request)?;
        let root = Root::fresh(faults, &system, plan.limits.scratch_bytes)?;
        // Attached by now. What follows closes every number without asking who owns it.
        std::mem::forget(system);
        root.dress(faults)?;
        show_limits(&root, limits)?;
        furnish(request, root, workspace, binds, channel)
    };
    let root = root?;
    here.quotas.limit_namespace()?;
    // Late: the host does other work until this process says something.
    hand_out_names(request, here, channel)?;
    creds::drop_bounding(faults)?;
    seal(request, root, mask, channel, &here.quotas)
}

fn set_up_begun(setup: &Setup, here: &Here, scratch_bytes: u64, channel: &OwnedFd) -> Result<OwnedFd, StepError> {
    let faults = setup.faults;
    let mask = rustix::process::umask(Mode::empty());
    let named = names_and_devices(setup, here);
    await_parent(setup, here, channel)?;
    named?;
    take_ids(setup, here)?;
    let root = Root::on_template(faults, scratch_bytes)?;
    root.dress(faults)?;
    here.quotas.limit_namespace()?;
    creds::drop_bounding(faults)?;
    // This may take long. Whatever else the launcher had open must not stay open with it.
    keep_only(&[channel, root.tree(), root.own()]).at(Step::CloseDescriptors, "descriptors of the launcher")?;
    let (plan, mounts) = order::receive(channel).at(Step::AwaitParent, "the order")?;
    let request = Request { plan: &plan, setup: *setup, group: None };
    take_mark(&request)?;
    connect_to_egress(&request, here, channel)?;
    // Looked at before the first is taken: what does not come is not to be looked for here, among the template's paths.
    check_count(mounts.len(), plan.binds.len())?;
    let mut mounts = mounts.into_iter();
    let workspace = open_workspace(&request, mounts.next(), None)?;
    let binds = open_binds(&request, Some(mounts.collect()))?;
    let root = furnish(&request, root, workspace, binds, channel)?;
    seal(&request, root, mask, channel, &here.quotas)
}

/// An order has a mount for the workspace and one for each bind.
fn check_count(mounts: usize, binds: usize) -> Result<(), StepError> {
    if mounts == binds + 1 {
        return Ok(());
    }
    Err(StepError::new(Step::OpenBinds, "the order has another number of mounts than its plan"))
}

/// From here on nothing is added, and everything given up. The bounding set is empty already.
fn seal(
    request: &Request<'_>,
    root: Root,
    mask: Mode,
    channel: &OwnedFd,
    quotas: &Quotas,
) -> Result<OwnedFd, StepError> {
    let Setup { faults, landlock_abi, report, .. } = request.setup;
    let filter = seccomp::Program::builtin(permissions(request.plan));
    root.enter(faults)?;
    rustix::process::umask(mask);

    quotas.limit_resources(faults, request.plan.limits.pids)?;
    let channel = close_descriptors(faults, channel)?;
    let finish = || -> Result<(), StepError> {
        // Landlock and the filter ask for no_new_privs, or else for a capability, which then goes after them.
        if stands(Wall::NoNewPrivileges) {
            creds::drop_rights(faults)?;
        }
        creds::not_dumpable(faults)?;
        creds::die_with_parent(faults)?;
        walls::restrict_files(faults, landlock_abi, &writable_places(request))?;
        walls::filter_calls(faults, &filter)?;
        if stands(Wall::NoNewPrivileges) { Ok(()) } else { creds::drop_rights(faults) }
    };
    match finish() {
        Ok(()) => Ok(channel),
        Err(error) => {
            // `run` reports on the old descriptor number, which is closed by now: report here, on the new one.
            let frame = GuestFrame::SetupFailed {
                step: error.step.name().to_owned(),
                errno: error.errno,
                detail: error.detail.clone(),
            };
            if report(&channel, &frame, &[]).is_err() {
                crate::clone::exit_now(2);
            }
            crate::clone::exit_now(1);
        }
    }
}

/// Returns what the system-call filter of this sandbox allows beyond the default.
fn permissions(plan: &Plan) -> seccomp::Permissions {
    let written = plan.binds.iter().any(|bind| bind.access == Access::ReadWrite);
    let layered = !matches!(plan.workspace.writes, Writes::Direct { .. }) && !written;
    seccomp::Permissions { debug: plan.allow_ptrace, layered }
}

/// Everything of this sandbox alone, in a root that has the system.
fn furnish(
    request: &Request<'_>,
    root: Root,
    workspace: Workspace,
    binds: Vec<OwnedFd>,
    channel: &OwnedFd,
) -> Result<Root, StepError> {
    root.dress_private(request.setup.faults, &kept::targets(request.plan))?;
    attach_workspace(request, &root, workspace, channel)?;
    let needs_covers = !request.plan.hidden.is_empty() || !request.plan.covered.is_empty();
    if needs_covers {
        make_covers(request, &root)?;
        hide_paths(request, &root)?;
    }
    attach_binds(request, &root, binds)?;
    if needs_covers {
        cover_sockets(request, &root)?;
        remove_covers(&root)?;
    }
    Ok(root)
}

fn await_parent(setup: &Setup, here: &Here, channel: &OwnedFd) -> Result<(), StepError> {
    if !here.parent_acts {
        return Ok(());
    }
    let mut byte = [0u8; 1];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(channel, &mut byte)).at(Step::AwaitParent, "channel")?;
    // Asked after the wait, for the same reason.
    setup.faults.check(Step::AwaitParent)?;
    if read == 1 { Ok(()) } else { Err(StepError::new(Step::AwaitParent, "the launcher is gone")) }
}

fn take_ids(setup: &Setup, here: &Here) -> Result<(), StepError> {
    let faults = setup.faults;
    let identity = &setup.identity;
    if !identity.by_root && !here.on_template {
        faults.check(Step::WriteIdMap)?;
        write_own_maps(identity).at(Step::WriteIdMap, "/proc/self/uid_map")?;
        here.quotas.give_up_protection()?;
    }
    faults.check(Step::CgroupNamespace)?;
    // Not a clone flag: only now is this process where its limits are, and that becomes the visible root.
    if stands(Wall::CgroupNamespace) {
        // SAFETY: CLONE_NEWCGROUP changes only what this process sees of the hierarchy.
        let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWCGROUP) };
        unshared.at(Step::CgroupNamespace, "unshare")?;
    }
    creds::become_inner(faults, identity)
}

/// An ordinary user may map just itself, and only after giving up setgroups(2) (user_namespaces(7)).
fn write_own_maps(identity: &Identity) -> io::Result<()> {
    let own = rustix::process::getpid();
    debug_assert_eq!(own.as_raw_nonzero().get(), 1, "the first process of its pid namespace");
    for (file, text) in
        [("setgroups", "deny".to_owned()), ("uid_map", identity.uid_map()), ("gid_map", identity.gid_map())]
    {
        std::fs::write(Path::new("/proc/self").join(file), text)?;
    }
    Ok(())
}

/// The mark by which `inventory` finds the process.
fn take_mark(request: &Request<'_>) -> Result<(), StepError> {
    let mark = std::ffi::CString::new(crate::mark(request.plan.run_id)).map_err(io::Error::other);
    rustix::thread::set_name(&mark.at(Step::HostName, "mark")?).at(Step::HostName, "mark")
}

fn names_and_devices(setup: &Setup, here: &Here) -> Result<(), StepError> {
    let faults = setup.faults;
    faults.check(Step::NewSession)?;
    rustix::process::setsid().at(Step::NewSession, "setsid")?;
    creds::wipe_strings(faults, &here.strings)?;
    faults.check(Step::HostName)?;
    if stands(Wall::UtsNamespace) {
        rustix::system::sethostname(rootfs::HOSTNAME.as_bytes()).at(Step::HostName, "sethostname")?;
    }
    if here.own_network && stands(Wall::NetworkNamespace) {
        faults.check(Step::Loopback)?;
        net::loopback_up().at(Step::Loopback, "lo")?;
        if !stands(Wall::NoRoute) {
            net::redirect(false).at(Step::Redirect, "a route that a test asked for")?;
        }
    }
    Ok(())
}

/// The way to the egress. The host holds the only copies of the listeners afterwards.
fn connect_to_egress(request: &Request<'_>, here: &Here, channel: &OwnedFd) -> Result<(), StepError> {
    let by_program = match request.plan.network {
        Network::None => return Ok(()),
        Network::Egress => false,
        Network::EgressByProgram => true,
    };
    let faults = request.setup.faults;
    if !here.own_network {
        // In one that was made in advance this process has no rights, and another sandbox would inherit the rules.
        return Err(StepError::new(Step::EgressListeners, "an egress needs a network made for this sandbox"));
    }
    faults.check(Step::EgressListeners)?;
    let listeners = net::make().map_err(|error| StepError::os(Step::EgressListeners, error.source, error.what))?;
    let ipv6 = listeners.len() == LISTENERS;
    let host_ports = net::make_host_ports(&request.plan.host_ports, ipv6).at(Step::EgressListeners, "host ports")?;
    faults.check(Step::Redirect)?;
    net::redirect(ipv6).at(Step::Redirect, "routes and nf_tables rules of the sandbox")?;
    let processes = if by_program {
        faults.check(Step::ShowProcesses)?;
        // One of its own: what is mounted for the command comes later, and the host starts to serve meanwhile.
        let proc = rootfs::new_proc().at(Step::ShowProcesses, "/proc for the host")?;
        vec![proc, net::diagnosis().at(Step::ShowProcesses, "NETLINK_SOCK_DIAG")?]
    } else {
        Vec::new()
    };
    faults.check(Step::SendListeners)?;
    let descriptors: Vec<_> = processes.iter().chain(&host_ports).chain(&listeners).map(AsFd::as_fd).collect();
    (request.setup.report)(channel, &GuestFrame::Listeners, &descriptors).at(Step::SendListeners, "channel")
}

/// Without an egress: the socket by which the host learns which names the command asks for. A network that was made in
/// advance gives this process no right to the port; there, nobody learns them.
fn hand_out_names(request: &Request<'_>, here: &Here, channel: &OwnedFd) -> Result<(), StepError> {
    if request.plan.network != Network::None || !here.own_network || !stands(Wall::NetworkNamespace) {
        return Ok(());
    }
    let faults = request.setup.faults;
    faults.check(Step::NameSocket)?;
    let socket = net::name_socket().at(Step::NameSocket, "DNS")?;
    (request.setup.report)(channel, &GuestFrame::Names, &[socket.as_fd()]).at(Step::NameSocket, "channel")
}

/// The workspace as it was opened.
enum Workspace {
    /// Ready to be attached.
    Mount(OwnedFd),
    /// The folders of a user's overlay, and by what it is watched.
    Lower { lower: OwnedFd, layer: Option<(OwnedFd, OwnedFd)>, watch: Option<OwnedFd> },
}

fn open_workspace(
    request: &Request<'_>,
    ready: Option<OwnedFd>,
    watch: Option<OwnedFd>,
) -> Result<Workspace, StepError> {
    request.setup.faults.check(Step::OpenWorkspace)?;
    if let Some(mount) = ready {
        return Ok(Workspace::Mount(mount));
    }
    let workspace = &request.plan.workspace;
    let source = workspace.source.as_path();
    let at = |error: io::Error| StepError::os(Step::OpenWorkspace, error, show(source));
    match &workspace.writes {
        Writes::Direct { .. } => places::open_source(source, NOSUID | NODEV).map(Workspace::Mount).map_err(at),
        Writes::MemoryLayer { .. } => {
            // The layer is still to be made.
            Ok(Workspace::Lower { lower: mounts::open_canonical(source).map_err(at)?, layer: None, watch })
        }
        Writes::Layer { root } => {
            let lower = mounts::open_canonical(source).map_err(at)?;
            let layer = mounts::open_canonical(root.as_path()).map_err(at)?;
            let open = |name: &str| mounts::place(&layer, Path::new(name));
            let layer = Some((open("upper").map_err(at)?, open("work").map_err(at)?));
            Ok(Workspace::Lower { lower, layer, watch })
        }
    }
}

fn open_binds(request: &Request<'_>, ready: Option<Vec<OwnedFd>>) -> Result<Vec<OwnedFd>, StepError> {
    request.setup.faults.check(Step::OpenBinds)?;
    if let Some(binds) = ready {
        return Ok(binds);
    }
    request
        .plan
        .binds
        .iter()
        .map(|bind| {
            let attributes = bind_attributes(bind.access);
            places::open_source(bind.source.as_path(), attributes).at(Step::OpenBinds, &show(bind.source.as_path()))
        })
        .collect()
}

/// The control groups of this run as read-only mounts, each with its place inside. On a template the host's paths are gone,
/// and limits cannot be seen inside.
fn open_limits(request: &Request<'_>) -> Result<Vec<(PathBuf, OwnedFd)>, StepError> {
    request.setup.faults.check(Step::ShowLimits)?;
    let shown = request.group.map_or_else(Vec::new, Group::shown);
    let open = |(source, name): (&Path, &str)| {
        let mount =
            places::open_source(source, RDONLY | NOSUID | NODEV | NOEXEC).at(Step::ShowLimits, &show(source))?;
        Ok((Path::new("sys/fs/cgroup").join(name), mount))
    };
    shown.into_iter().map(open).collect()
}

/// Programs that size themselves look for their limits there. Nothing else of `/sys` is shown.
fn show_limits(root: &Root, limits: Vec<(PathBuf, OwnedFd)>) -> Result<(), StepError> {
    for (target, mount) in limits {
        let place = root.place_for(&target, true).at(Step::ShowLimits, &show(&target))?;
        mounts::attach(mount, place).at(Step::ShowLimits, &show(&target))?;
    }
    Ok(())
}

/// What a bound path may never be, whoever binds it.
pub fn bind_attributes(access: Access) -> u64 {
    match access {
        Access::ReadOnly if !stands(Wall::ReadOnlyBinds) => NOSUID | NODEV,
        Access::ReadOnly => RDONLY | NOSUID | NODEV,
        Access::ReadWrite => NOSUID | NODEV,
    }
}

fn attach_workspace(
    request: &Request<'_>,
    root: &Root,
    workspace: Workspace,
    channel: &OwnedFd,
) -> Result<(), StepError> {
    let faults = request.setup.faults;
    let target = request.plan.workspace.target.as_path();
    let mut memory = None;
    let mount = match workspace {
        Workspace::Mount(mount) => mount,
        Workspace::Lower { lower, layer, watch } => {
            let (upper, work) = match layer {
                Some(folders) => folders,
                None => memory.insert(MemoryLayer::make(request, root.own(), &lower)?).folders()?,
            };
            let parts = overlay::Parts { lower: &lower, upper: &upper, work: &work };
            faults.check(Step::MountWorkspace)?;
            let mount = overlay::in_user_namespace(&parts).at(Step::MountWorkspace, "the overlay of the workspace")?;
            watch::watch(watch.as_ref(), &mount);
            if memory.is_some() {
                faults.check(Step::SendLayer)?;
                let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let upper = rustix::fs::openat(&upper, c".", readable, Mode::empty()).at(Step::SendLayer, "upper")?;
                (request.setup.report)(channel, &GuestFrame::Layer, &[upper.as_fd()]).at(Step::SendLayer, "channel")?;
            }
            mount
        }
    };
    faults.check(Step::MountWorkspace)?;
    let place = root.place_for(below_root(target), true).at(Step::MountWorkspace, &show(target))?;
    mounts::attach(mount, place).at(Step::MountWorkspace, &show(target))?;
    if let Some(memory) = memory {
        memory.hide(root.own())?;
    }
    if let Writes::Direct { protected } = &request.plan.workspace.writes {
        let covered: Vec<&Path> = protected.iter().chain(&request.plan.hidden).map(ByteText::as_path).collect();
        if !covered.is_empty() {
            faults.check(Step::ProtectNames)?;
        }
        // Each directory above a covered name once, those further up first: nobody renames one away and puts another in
        // its place.
        let above = |path: &&'_ Path| path.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
        let pinned: BTreeSet<PathBuf> = covered.iter().flat_map(above).filter(|one| *one != Path::new("")).collect();
        for directory in pinned {
            mount_on_itself(root.tree(), &below_root(target).join(directory), NOSUID | NODEV)?;
        }
        for name in protected {
            mount_on_itself(root.tree(), &below_root(target).join(name.as_path()), RDONLY | NOSUID | NODEV)?;
        }
    }
    Ok(())
}

/// A layer on a tmpfs of its own inside the sandbox: its size is a hard limit that needs no rights.
struct MemoryLayer(OwnedFd);

const LAYER_PLACE: &str = "layer";

impl MemoryLayer {
    fn make(request: &Request<'_>, root: &OwnedFd, workspace: &OwnedFd) -> Result<Self, StepError> {
        request.setup.faults.check(Step::MountLayer)?;
        let Writes::MemoryLayer { bytes } = &request.plan.workspace.writes else {
            return Err(StepError::new(Step::MountLayer, "no layer in memory was planned"));
        };
        let make = || -> io::Result<OwnedFd> {
            let mount = memory::filesystem(*bytes)?;
            mounts::attach(&mount, places::ensure_place(root, Path::new(LAYER_PLACE), true)?)?;
            memory::make_directories(&mount, workspace, false)?;
            Ok(mount)
        };
        make().at(Step::MountLayer, "a layer in memory").map(Self)
    }

    fn folders(&self) -> Result<(OwnedFd, OwnedFd), StepError> {
        let open = |name: &str| mounts::place(&self.0, Path::new(name)).at(Step::MountLayer, name);
        Ok((open("upper")?, open("work")?))
    }

    /// The overlay keeps it; the command must not see it.
    fn hide(self, root: &OwnedFd) -> Result<(), StepError> {
        let hide = || -> io::Result<()> {
            rustix::mount::unmount(mounts::fd_path(&self.0), rustix::mount::UnmountFlags::DETACH)?;
            drop(self);
            Ok(rustix::fs::unlinkat(root, LAYER_PLACE, AtFlags::REMOVEDIR)?)
        };
        hide().at(Step::MountLayer, "hiding the layer in memory")
    }
}

/// Mounts an existing path of a directly written workspace on itself, read-only or to pin it: what is mounted on cannot be
/// renamed or removed. A symbolic link is mounted on itself as well, and leads where it did.
fn mount_on_itself(root: &OwnedFd, path: &Path, attributes: u64) -> Result<(), StepError> {
    let one = || -> io::Result<()> {
        let place = mounts::place(root, path)?;
        let copy = mounts::open_tree_fd(&place, Depth::Recursive)?;
        mounts::set_attributes(&copy, attributes, Depth::Recursive)?;
        mounts::attach(copy, place)
    };
    one().at(Step::ProtectNames, &show(path))
}

/// Covers paths of the workspace with an empty file or folder that nobody may open. The cover is read-only, so that
/// its owner, who is the user inside, cannot give himself the right.
fn hide_paths(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    for path in &request.plan.hidden {
        let target = below_root(request.plan.workspace.target.as_path()).join(path.as_path());
        cover(root, &target).at(Step::HidePaths, &show(&target))?;
    }
    Ok(())
}

/// Covers sockets in binds in the same way: a mount that cannot be written does not keep anybody from connecting.
fn cover_sockets(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    for path in &request.plan.covered {
        let target = below_root(path.as_path());
        match cover(root, target) {
            // Gone since the launcher looked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            covered => covered.at(Step::HidePaths, &show(target))?,
        }
    }
    Ok(())
}

fn make_covers(request: &Request<'_>, root: &Root) -> Result<(), StepError> {
    request.setup.faults.check(Step::HidePaths)?;
    let at = |error: io::Error, path: &Path| StepError::os(Step::HidePaths, error, show(path));
    for (name, is_dir) in COVERS {
        let name = Path::new(name);
        places::ensure_place(root.own(), name, is_dir).map_err(|error| at(error, name))?;
        rustix::fs::chmodat(root.own(), name, Mode::empty(), AtFlags::empty())
            .map_err(|error| at(error.into(), name))?;
    }
    Ok(())
}

/// The covers stay where they are attached; their names would only raise questions.
fn remove_covers(root: &Root) -> Result<(), StepError> {
    let at = |error: io::Error, path: &Path| StepError::os(Step::HidePaths, error, show(path));
    for (name, is_dir) in COVERS {
        let flags = if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        rustix::fs::unlinkat(root.own(), name, flags).map_err(|error| at(error.into(), Path::new(name)))?;
    }
    Ok(())
}

/// An empty file and an empty folder, as they are called while they are attached.
const COVERS: [(&str, bool); 2] = [("hidden-file", false), ("hidden-folder", true)];

fn cover(root: &Root, target: &Path) -> io::Result<()> {
    let place = mounts::place(root.tree(), target)?;
    let (name, _) = COVERS[usize::from(places::is_dir(&place)?)];
    let copy = mounts::open_tree_at(root.own(), Path::new(name))?;
    let read_only = if stands(Wall::HiddenCovers) { RDONLY } else { 0 };
    mounts::set_attributes(&copy, read_only | NOSUID | NODEV, Depth::One)?;
    mounts::attach(copy, place)
}

fn attach_binds(request: &Request<'_>, root: &Root, binds: Vec<OwnedFd>) -> Result<(), StepError> {
    request.setup.faults.check(Step::MountBinds)?;
    let workspace = request.plan.workspace.target.as_path();
    let mut pairs: Vec<_> = request.plan.binds.iter().zip(binds).collect();
    // A folder before what lies inside it.
    pairs.sort_by(|a, b| a.0.target.0.cmp(&b.0.target.0));
    let mut done: Vec<&Path> = vec![workspace];
    for (bind, mount) in pairs {
        let target = bind.target.as_path();
        let name = show(target);
        let inside_another = done.iter().any(|other| target.starts_with(other));
        let place = if inside_another {
            // Never make a mount point in a folder of the user.
            mounts::place(root.tree(), below_root(target))
        } else {
            root.place_for(below_root(target), places::is_dir(&mount).at(Step::MountBinds, &name)?)
        };
        mounts::attach(mount, place.at(Step::MountBinds, &name)?).at(Step::MountBinds, &name)?;
        done.push(target);
    }
    Ok(())
}

fn writable_places(request: &Request<'_>) -> Vec<PathBuf> {
    let plan = request.plan;
    let binds = plan.binds.iter().filter(|bind| bind.access == Access::ReadWrite).map(|bind| &bind.target);
    std::iter::once(&plan.workspace.target).chain(binds).map(|path| path.as_path().to_owned()).collect()
}

/// Closes every descriptor but these; 0 to 2 lead nowhere then.
fn keep_only(kept: &[&OwnedFd]) -> io::Result<()> {
    let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    let mut numbers: Vec<u32> = kept.iter().map(|fd| fd.as_raw_fd() as u32).collect();
    numbers.extend([2, null.as_raw_fd() as u32]);
    numbers.sort_unstable();
    numbers.dedup();
    let ends = numbers.iter().skip(1).map(|next| next - 1).chain([u32::MAX]);
    for (first, last) in numbers.iter().map(|number| number + 1).zip(ends).filter(|(first, last)| first <= last) {
        // SAFETY: whoever owned these in this copy of the launcher never runs again; what this child goes on with is
        // kept.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0u32) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The guest's channel becomes descriptor 3 and is the only one but 0 to 2, which lead nowhere.
fn close_descriptors(faults: Faults, channel: &OwnedFd) -> Result<OwnedFd, StepError> {
    faults.check(Step::CloseDescriptors)?;
    let close = || -> io::Result<OwnedFd> {
        let null = rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        const PLACE: i32 = 3;
        if channel.as_raw_fd() != PLACE {
            // SAFETY: dup3 with plain numbers. Whoever held descriptor 3 in this copy of the launcher never runs
            // again: from here only the guest does, which owns nothing but the channel.
            if unsafe { libc::dup3(channel.as_raw_fd(), PLACE, libc::O_CLOEXEC) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        if stands(Wall::LauncherDescriptors) {
            // SAFETY: as above; `null` is closed here as well, so it is forgotten.
            if unsafe { libc::syscall(libc::SYS_close_range, PLACE as u32 + 1, u32::MAX, 0u32) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        std::mem::forget(null);
        // SAFETY: descriptor 3 is open and nobody else owns it.
        Ok(unsafe { rustix::fd::FromRawFd::from_raw_fd(PLACE) })
    };
    close().at(Step::CloseDescriptors, "descriptors above 2")
}

/// Writes the maps of a child that root started.
pub fn write_maps(pid: i32, identity: &Identity) -> io::Result<()> {
    let root = if stands(Wall::IdMap) { "" } else { "\n1001 0 1" };
    idmap::write_map(pid, "uid_map", &format!("{}{root}", identity.uid_map()))?;
    idmap::write_map(pid, "gid_map", &format!("{}{root}", identity.gid_map()))
}

#[cfg(test)]
#[path = "child_tests.rs"]
mod tests;
