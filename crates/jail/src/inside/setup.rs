//! The child's half of a launch: from the first instruction in new namespaces to the guest.
//!
//! ```text
//!  clone3 ─▶ session, names, loopback ─▶ ids ─┬─▶ open host paths ─▶ private root with the system ─┬─▶ /proc, workspace, binds
//!                                            └─▶ (on a template both are done) ───────────────────┘
//!        ─▶ (pivot, drop the host) ─▶ limits ─▶ close ─▶ no rights ─▶ die with parent ─▶ Landlock ─▶ seccomp ─▶ guest
//! ```
//! A warm sandbox (`prefork`) does all that needs no plan, and waits for the plan before `workspace`.
//! Any error on the way is reported to the host as one frame, and the process ends: there is no "best effort".

use crate::identity::Identity;
use crate::inside::mounted::LookedAt;
use crate::inside::rootfs::{self, Root};
use crate::inside::workspace::{self, Workspace};
use crate::inside::{binds, confinement, covers, descriptors, image, limits, places, second_search, secrets, system};
use crate::leave_out::{Wall, stands};
use crate::quotas::Quotas;
use crate::request::{self, Here, Prepared, Request, Setup, Start};
use crate::steps::{AtStep, Step, StepError};
use crate::{creds, launch_message, net, seccomp};
use nexus_channel::frames::{GuestFrame, LISTENERS};
use nexus_model::Plan;
use nexus_model::moving::Numbers;
use nexus_model::network::Network;
use nexus_model::plan::{Access, Writes};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Mode;
use std::io;
use std::path::{Path, PathBuf};

/// Sets the sandbox up and becomes its guest. Returns the code to end with.
pub fn run(request: &Request<'_>, start: Start) -> i32 {
    let Start { here, channel, prepared, watch } = start;
    let done = set_up(request, &here, prepared, watch, &channel);
    become_guest(&request.setup, channel, done)
}

/// Sets up a warm sandbox.
pub fn run_warm(setup: &Setup, here: &Here, scratch_bytes: u64, channel: OwnedFd) -> i32 {
    let done = set_up_warm(setup, here, scratch_bytes, &channel);
    become_guest(setup, channel, done)
}

fn become_guest(setup: &Setup, channel: OwnedFd, done: Result<Sealed, StepError>) -> i32 {
    match done {
        Ok(Sealed { channel: channel_now, moves }) => {
            // The descriptor has moved to its place; the old number is closed already.
            std::mem::forget(channel);
            (setup.guest)(channel_now, moves)
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

fn set_up(
    request: &Request<'_>,
    here: &Here,
    prepared: Prepared,
    watch: Option<OwnedFd>,
    channel: &OwnedFd,
) -> Result<Sealed, StepError> {
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

    let mut numbers = prepared.numbers;
    let root = if here.on_template {
        let workspace = workspace::open(request, prepared.workspace, watch)?;
        numbers = workspace.numbers().unwrap_or(numbers);
        let binds = binds::open(request, prepared.binds)?;
        let root = Root::on_template(faults, plan.limits.scratch_bytes)?;
        root.mount_own(faults)?;
        populate(request, root, workspace, (binds, prepared.lists), channel)
    } else {
        faults.check(Step::PrivateMounts)?;
        let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private).at(Step::PrivateMounts, "/")?;
        let system = system::open(faults, image::open(request, prepared.image)?)?;
        let workspace = workspace::open(request, prepared.workspace, watch)?;
        numbers = workspace.numbers().unwrap_or(numbers);
        let binds = binds::open(request, prepared.binds)?;
        let limits = limits::open(request)?;
        let root = Root::fresh(faults, &system, plan.limits.scratch_bytes)?;
        // Attached by now. What follows closes every number without asking who owns it.
        std::mem::forget(system);
        root.mount_own(faults)?;
        limits::attach(&root, limits)?;
        populate(request, root, workspace, (binds, prepared.lists), channel)
    };
    let root = root?;
    here.quotas.limit_namespace()?;
    // Late: the host does other work until this process says something.
    hand_out_names(request, here, channel)?;
    creds::drop_bounding(faults)?;
    seal(request, root, (mask, numbers), channel, &here.quotas)
}

fn set_up_warm(setup: &Setup, here: &Here, scratch_bytes: u64, channel: &OwnedFd) -> Result<Sealed, StepError> {
    let faults = setup.faults;
    let mask = rustix::process::umask(Mode::empty());
    let named = names_and_devices(setup, here);
    await_parent(setup, here, channel)?;
    named?;
    take_ids(setup, here)?;
    let root = Root::on_template(faults, scratch_bytes)?;
    root.mount_own(faults)?;
    here.quotas.limit_namespace()?;
    creds::drop_bounding(faults)?;
    // This may take long. Whatever else the launcher had open must not stay open with it.
    descriptors::keep_only(&[channel, root.tree(), root.own()])
        .at(Step::CloseDescriptors, "descriptors of the launcher")?;
    let (plan, numbers, mounts) = launch_message::receive(channel).at(Step::AwaitParent, "the order")?;
    let request = Request { plan: &plan, setup: *setup, group: None };
    take_mark(&request)?;
    connect_to_egress(&request, here, channel)?;
    // Looked at before the first is taken: what does not come is not to be looked for here, among the template's paths.
    check_count(mounts.len(), plan.binds.len())?;
    let mut mounts = mounts.into_iter();
    let workspace = workspace::open(&request, mounts.next(), None)?;
    let binds = binds::open(&request, Some(mounts.collect()))?;
    let root = populate(&request, root, workspace, (binds, Vec::new()), channel)?;
    hand_out_names(&request, here, channel)?;
    seal(&request, root, (mask, numbers), channel, &here.quotas)
}

/// An order has a mount for the workspace and one for each bind.
fn check_count(mounts: usize, binds: usize) -> Result<(), StepError> {
    if mounts == binds + 1 {
        return Ok(());
    }
    Err(StepError::new(Step::OpenBinds, "the order has another number of mounts than its plan"))
}

/// A sandbox that stands.
struct Sealed {
    channel: OwnedFd,
    /// The numbers of the workspace's files; set where the overlay renames no directory of the layer below, as that of an ordinary user.
    moves: Option<Numbers>,
}

/// From here on nothing is added, and everything given up. The bounding set is empty already.
fn seal(
    request: &Request<'_>,
    root: Root,
    (mask, numbers): (Mode, Numbers),
    channel: &OwnedFd,
    quotas: &Quotas,
) -> Result<Sealed, StepError> {
    let Setup { faults, landlock_abi, report, identity, .. } = request.setup;
    let filter = seccomp::Program::builtin(permissions(request.plan));
    root.enter(faults)?;
    rustix::process::umask(mask);

    quotas.limit_resources(faults, request.plan.limits.pids)?;
    let channel = descriptors::close_descriptors(faults, channel)?;
    let finish = || -> Result<(), StepError> {
        // Landlock and the filter ask for no_new_privs, or else for a capability, which then goes after them.
        if stands(Wall::NoNewPrivileges) {
            creds::drop_rights(faults)?;
        }
        creds::not_dumpable(faults)?;
        creds::die_with_parent(faults)?;
        confinement::restrict_files(faults, landlock_abi, &writable_places(request))?;
        confinement::filter_calls(faults, &filter)?;
        if stands(Wall::NoNewPrivileges) { Ok(()) } else { creds::drop_rights(faults) }
    };
    match finish() {
        Ok(()) => {
            let moves = !identity.by_root && is_layered(request.plan) && stands(Wall::Seccomp);
            Ok(Sealed { channel, moves: moves.then_some(numbers) })
        }
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
    seccomp::Permissions { debug: plan.allow_ptrace, layered: is_layered(plan) && !written }
}

fn is_layered(plan: &Plan) -> bool {
    !matches!(plan.workspace.writes, Writes::Direct { .. })
}

/// Everything of this sandbox alone, in a root that has the system.
fn populate(
    request: &Request<'_>,
    root: Root,
    workspace: Workspace,
    (binds, lists): (Vec<OwnedFd>, Vec<OwnedFd>),
    channel: &OwnedFd,
) -> Result<Root, StepError> {
    root.mount_private(request.setup.faults, &request::targets(request.plan), &request.plan.private)?;
    secrets::place(request, &root, channel)?;
    workspace::attach(request, &root, workspace, channel)?;
    let needs_covers = !request.plan.hidden.is_empty() || !request.plan.covered.is_empty();
    if needs_covers {
        covers::make(request, &root)?;
    }
    // A bind of a part of the workspace at its own place lies over it, and the covers over both.
    let held = binds::attach(request, &root, binds)?;
    let mut looked_at = LookedAt::default();
    if needs_covers {
        covers::cover_sockets(request, &root, &held, &mut looked_at)?;
        covers::hide_paths(request, &root)?;
        covers::remove(&root)?;
    }
    second_search::inspect(request, &root, lists, looked_at)?;
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
    let label = std::ffi::CString::new(crate::label(request.plan.run_id)).map_err(io::Error::other);
    rustix::thread::set_name(&label.at(Step::HostName, "mark")?).at(Step::HostName, "mark")
}

fn names_and_devices(setup: &Setup, here: &Here) -> Result<(), StepError> {
    let faults = setup.faults;
    faults.check(Step::NewSession)?;
    rustix::process::setsid().at(Step::NewSession, "setsid")?;
    creds::wipe_strings(faults, &here.strings)?;
    faults.check(Step::HostName)?;
    if stands(Wall::UtsNamespace) {
        rustix::system::sethostname(places::HOSTNAME.as_bytes()).at(Step::HostName, "sethostname")?;
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
/// advance gives this process no right to the port; there, no process learns them.
fn hand_out_names(request: &Request<'_>, here: &Here, channel: &OwnedFd) -> Result<(), StepError> {
    if request.plan.network != Network::None || !here.own_network || !stands(Wall::NetworkNamespace) {
        return Ok(());
    }
    let faults = request.setup.faults;
    faults.check(Step::NameSocket)?;
    let socket = net::name_socket().at(Step::NameSocket, "DNS")?;
    (request.setup.report)(channel, &GuestFrame::Names, &[socket.as_fd()]).at(Step::NameSocket, "channel")
}

fn writable_places(request: &Request<'_>) -> Vec<PathBuf> {
    let plan = request.plan;
    let binds = plan.binds.iter().filter(|bind| bind.access == Access::ReadWrite).map(|bind| &bind.target);
    std::iter::once(&plan.workspace.target)
        .chain(binds)
        .chain(&plan.private)
        .map(|path| path.as_path().to_owned())
        .collect()
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;
