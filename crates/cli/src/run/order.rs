//! From flags to a plan, and from a driver's refusal to advice.

use super::ask;
use super::disk::Measured;
use crate::args::{Changes, RunArgs, Sandbox};
use crate::environment;
use crate::failure::Failure;
use crate::net::Network;
use crate::profile::{Resolution, shown_binds};
use nexus_driver::{NotStarted, PrepareError, SetupError, StartError};
use nexus_facility::Workspace;
use nexus_model::limits::{DEFAULT_GRACE_MS, DEFAULT_MAX_OUTPUT, DEFAULT_PIDS};
use nexus_model::network::Network as NetworkKind;
use nexus_model::plan::{PlanDraft, PlanError, WorkspaceMount, Writes};
use nexus_model::spec::SandboxProfile;
use nexus_model::{ByteText, Guarantee, Limits, Plan, RunId};
use nexus_policy::profile::{ChangesMode, Grants, LimitKind, NetMode, ProfileName, Toolchain};
use nexus_runner::causes::chain;
use nexus_runner::plan::direct::Direct;
use nexus_runner::plan::{fit, hide, mounts, workspace};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::{self, DirectoryId};
use nexus_runner::state::record::Record;
use rustix::io::Errno;
use std::time::Duration;

/// Everything about a run that the flags say.
pub struct Order {
    /// Where state is.
    pub places: StateDir,
    /// The workspace, opened once: what the run commits goes through this descriptor and through no path.
    pub directory: Workspace,
    /// The identity of that descriptor, for journals.
    pub id: nexus_facility::FolderId,
    /// The same, for records.
    pub folder: DirectoryId,
    /// The checked plan.
    pub plan: Plan,
    /// Until SIGTERM.
    pub timeout: Option<Duration>,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Bytes of output that are kept.
    pub max_output: Option<u64>,
    /// What becomes of the changes.
    pub changes: Changes,
    /// The line of the workspace's own file that keeps them out of the workspace.
    pub changes_by_file: Option<String>,
    /// First host uid of sandboxes that root starts.
    pub uid_base: u32,
    /// What it may reach, where it has a network.
    pub network: Option<Network>,
    /// The documents that said what it may do.
    pub profiles: Vec<ProfileName>,
    /// What a direct run covers.
    pub direct: Option<Direct>,
    /// Toolchains that are shown.
    pub toolchains: Vec<Toolchain>,
    /// Names that a commit holds back besides those that it always does.
    pub protect: Vec<String>,
    /// Names of variables that hold credentials and are passed on.
    pub env_secrets: Vec<ByteText>,
    /// Paths that are shown because the operator opened them.
    pub opened_binds: Vec<ByteText>,
    /// Sockets of the host that the command may connect to.
    pub allowed_sockets: Vec<ByteText>,
}

impl Order {
    /// Reads the flags and looks at the paths that they name.
    pub fn read(args: &RunArgs) -> Result<Self, Failure> {
        refuse_what_is_not_here(args)?;
        let places = crate::host::state_dir()?;
        let workspace = crate::host::workspace(args.workspace.as_deref(), &places)?;
        let places = places.ensure(&crate::host::here())?;
        if !places.was_there {
            // Once more, now that the state directory exists: what was looked at before might have been a link's parent.
            workspace::check(&workspace, &crate::host::here(), &places)?;
        }
        let unusable = |why: String| {
            let message = format!("the workspace {} cannot be used: {why}", workspace.display());
            Failure::refused("workspace", message, "name a folder that you can read and enter with --workspace")
        };
        let directory = identity::open(&workspace).map_err(|error| unusable(chain(&error)))?;
        let id = directory.identity().map_err(|error| unusable(error.to_string()))?;
        let cwd =
            workspace::working_directory(args.cwd.as_deref(), std::env::current_dir().ok().as_deref(), &workspace)?;
        let resolution = Resolution::of(args, &workspace, &places)?;
        let grants = &resolution.grants;
        let run_id = RunId::new();
        let by_file = workspace.clone();
        refuse_what_a_network_breaks(args, &resolution)?;
        crate::net::refuse_loopback_rules(&grants.net)?;
        let host_ports: Vec<u16> = grants.net.host_ports.iter().map(|port| port.value).collect();
        crate::net::refuse_ports_of_nexus(&host_ports)?;
        let (total, limits) = limits(grants);
        let protect: Vec<String> = grants.protect.iter().map(|name| name.value.clone()).collect();
        // Only a direct run needs them: a layer holds protected names back by itself.
        let direct = if args.direct {
            Some(Direct::find(&crate::host::here(), &workspace, &protect, args.direct_git)?)
        } else {
            None
        };
        let layer = places.layers.join(run_id.to_string());
        let writes = match limits.disk_bytes {
            _ if args.direct => {
                Writes::Direct { protected: direct.as_ref().map(|one| one.protected.clone()).unwrap_or_default() }
            }
            Some(bytes) if bytes <= total / 4 => Writes::MemoryLayer { bytes },
            _ => Writes::Layer { root: layer.into() },
        };
        if !args.direct {
            mounts::refuse_inside(&workspace)?;
            fit::check_top(&workspace, matches!(writes, Writes::MemoryLayer { .. }))?;
        }
        let argv = match &args.shell {
            Some(text) => vec!["/bin/sh".into(), "-c".into(), text.clone().into()],
            None => args.command.iter().cloned().map(ByteText::from).collect(),
        };
        check_patterns(grants)?;
        let patterns: Vec<String> = grants.hide.iter().map(|pattern| pattern.value.clone()).collect();
        let flags = environment::EnvFlags { env: &args.env, secret: &args.env_secret };
        let env = environment::build(flags, grants, &resolution.found, |name| std::env::var_os(name))?;
        let marker = Record::place(&places.runs, run_id);
        let shown = shown_binds(args, &resolution, &workspace, &places)?;
        let env_secrets = env.iter().filter(|variable| variable.secret).map(|one| one.name.clone()).collect();
        let draft = PlanDraft {
            run_id,
            profile: SandboxProfile::Untrusted,
            hidden: hide::find(&patterns, args.hide_secrets, &workspace)?,
            binds: shown.binds,
            covered: shown.sockets.covered,
            workspace: WorkspaceMount { source: workspace.clone().into(), target: workspace.into(), writes },
            argv,
            cwd: cwd.into(),
            env: env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            network: network_kind(resolution.network.as_ref()),
            host_ports,
            limits,
            required: args.require.iter().copied().collect(),
            allow_ptrace: grants.allows_debug(),
            marker: marker.into(),
        };
        Ok(Self {
            directory,
            id,
            folder: id.into(),
            places,
            plan: Plan::new(draft).map_err(|error| plan_failure(&error))?,
            timeout: limit(grants, LimitKind::Timeout).map(Duration::from_millis),
            grace: Duration::from_millis(args.grace.unwrap_or(DEFAULT_GRACE_MS)),
            max_output: limit(grants, LimitKind::MaxOutput).or(args.json.then_some(DEFAULT_MAX_OUTPUT)),
            changes: changes(grants, args),
            changes_by_file: match changes(grants, args) {
                Changes::Discard | Changes::Review => resolution.changes_by_file(&by_file).map(ToString::to_string),
                Changes::Commit | Changes::Ask => None,
            },
            uid_base: resolution
                .settings
                .uid_base
                .as_ref()
                .map_or(nexus_driver_namespace::DEFAULT_UID_BASE, |base| base.value),
            network: resolution.network,
            profiles: resolution.documents,
            direct,
            toolchains: resolution.grants.toolchains.iter().map(|asked| asked.value).collect(),
            protect,
            env_secrets,
            opened_binds: shown.opened,
            allowed_sockets: shown.sockets.allowed,
        })
    }

    /// The folder to measure and its limit, when the disk limit is held by measuring. Asked for before the command
    /// starts, since what room there is then is what it may take from.
    pub fn measured_layer(&self) -> Option<(Measured, u64)> {
        match (&self.plan.workspace.writes, self.plan.limits.disk_bytes) {
            (Writes::Layer { root }, Some(limit)) => Some((Measured::new(root.as_path().join("upper")), limit)),
            _ => None,
        }
    }
}

/// Refuses what a later version takes, and a question where nobody can be asked.
pub fn refuse_what_is_not_here(args: &RunArgs) -> Result<(), Failure> {
    refuse_inside()?;
    let refuse = |message: &str, hint: &str| Err(Failure::refused("not_in_this_version", message, hint));
    match args.sandbox {
        Sandbox::Untrusted => {}
        Sandbox::Trusted => return refuse("containers are not in this version", "use --sandbox untrusted"),
        Sandbox::Host => return refuse("running without isolation is not in this version", "use --sandbox untrusted"),
    }
    if args.changes == Some(Changes::Ask) && (args.json || args.stdin || !ask::is_possible()) {
        let message = "--changes ask needs a terminal to ask on, and standard input for itself";
        return Err(Failure::usage("ask", message, "use --changes review and decide with nexus changes"));
    }
    if args.net.ask && (args.json || args.stdin || args.tty || args.detach || !crate::net::can_ask()) {
        let message = "--ask needs a terminal for itself: not with --json, --stdin, --tty or --detach";
        return Err(Failure::usage("ask", message, "name the destinations with --allow"));
    }
    Ok(())
}

/// Inside a sandbox there is no other one: the calls for it are refused. `CYBROS_NEXUS=1` alone is no proof of being inside,
/// and a filter of system calls is another's too; both together say it well enough for a message.
fn refuse_inside() -> Result<(), Failure> {
    let marked = std::env::var_os("CYBROS_NEXUS").is_some_and(|value| value == "1");
    let filtered = || rustix::thread::secure_computing_mode() == Ok(rustix::thread::SecureComputingMode::Filter);
    if marked && filtered() {
        let message = "This command runs inside a sandbox of Nexus already (CYBROS_NEXUS=1), and there is no sandbox in a sandbox";
        return Err(Failure::refused("inside", message, "Call the program itself, without nexus run."));
    }
    Ok(())
}

/// The host looks at the sandbox's processes only where a rule is for one program.
fn network_kind(network: Option<&Network>) -> NetworkKind {
    match network {
        None => NetworkKind::None,
        Some(network) if network.policy.names_programs() => NetworkKind::EgressByProgram,
        Some(_) => NetworkKind::Egress,
    }
}

/// A guarantee that somebody demands must not be given up by another flag in silence.
fn refuse_what_a_network_breaks(args: &RunArgs, resolution: &Resolution) -> Result<(), Failure> {
    if resolution.network.is_some() && args.require.contains(&Guarantee::NetNone) {
        let mode = resolution.grants.net.mode.as_ref().filter(|mode| mode.value != NetMode::None);
        let opened = mode.map_or_else(|| "--allow-host-port".to_owned(), |mode| mode.from.to_string());
        let message = format!("{opened} opens the network, and --require net.none forbids it");
        return Err(Failure::usage("require", message, "use --net none, or --require net.destination_checked"));
    }
    Ok(())
}

/// What becomes of the changes. Where a file wants somebody to be asked and nobody can be, they wait for a review:
/// committing them would be less than the file wants.
pub fn changes(grants: &Grants, args: &RunArgs) -> Changes {
    let can_ask = !args.json && !args.stdin && ask::is_possible();
    match grants.changes.as_ref().map(|changes| changes.value) {
        None | Some(ChangesMode::Ask) if can_ask => Changes::Ask,
        None | Some(ChangesMode::Commit) => Changes::Commit,
        Some(ChangesMode::Ask | ChangesMode::Review) => Changes::Review,
        Some(ChangesMode::Discard) => Changes::Discard,
    }
}

/// A broken pattern of a file is named with its line; one of a flag by [`hide::find`].
pub fn check_patterns(grants: &Grants) -> Result<(), Failure> {
    for pattern in grants.hide.iter().filter(|pattern| !pattern.from.is_flag()) {
        hide::check(&pattern.value).map_err(|reason| {
            let message = format!("{}: the pattern {:?} cannot be used: {reason}", pattern.from, pattern.value);
            Failure::refused("hide", message, "write a pattern such as \"*.pem\" or \"config/secrets/**\"")
        })?;
    }
    Ok(())
}

fn limit(grants: &Grants, kind: LimitKind) -> Option<u64> {
    grants.limits.get(&kind).map(|limit| limit.value)
}

/// The machine's memory in bytes, and the limits of this run.
fn limits(grants: &Grants) -> (u64, Limits) {
    let info = rustix::system::sysinfo();
    let total = info.totalram as u64 * u64::from(info.mem_unit.max(1));
    let disk_bytes = limit(grants, LimitKind::Disk);
    let mut scratch = (total / 4).clamp(16 << 20, 4 << 30);
    if let Some(disk) = disk_bytes {
        scratch = scratch.min(disk.max(1 << 20));
    }
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let limits = Limits {
        memory_bytes: limit(grants, LimitKind::Memory),
        cpu_millis: limit(grants, LimitKind::Cpus).map(narrow),
        pids: limit(grants, LimitKind::Pids).map_or(DEFAULT_PIDS, narrow),
        disk_bytes,
        scratch_bytes: scratch,
    };
    (total, limits)
}

fn plan_failure(error: &PlanError) -> Failure {
    let hint = match error {
        PlanError::NoCommand => "write it after --, for example: nexus run -- make test",
        PlanError::Nul { .. } => "take it out",
        PlanError::NotNormal { .. } => "write the whole path without . and ..",
        PlanError::Reserved { .. } | PlanError::CoversWorkspace { .. } => "bind it somewhere else with SRC:DST",
        PlanError::Overlap { .. } => "give each bind its own place with SRC:DST",
        PlanError::CoveredOutside { .. } => "this should not happen; run nexus doctor",
        PlanError::CwdOutside { .. } => "name a folder inside the workspace with --cwd",
        PlanError::EnvName { .. } => "write --env NAME=VALUE",
        PlanError::Contradiction => "use --net none, or --require net.destination_checked",
        PlanError::ZeroLimit { .. } => "leave the limit out, or make it larger",
        PlanError::TooManyHostPorts { .. } | PlanError::HostPort { .. } => "name other ports with --allow-host-port",
        PlanError::ArgumentTooLong { .. } => "",
    };
    match error {
        PlanError::NoCommand
        | PlanError::EnvName { .. }
        | PlanError::Contradiction
        | PlanError::ZeroLimit { .. }
        | PlanError::TooManyHostPorts { .. }
        | PlanError::HostPort { .. }
        | PlanError::ArgumentTooLong { .. } => Failure::usage("plan", error.to_string(), hint),
        _ => Failure::refused("plan", error.to_string(), hint),
    }
}

/// Advice for a plan that cannot run here.
pub fn prepare_failure(error: &PrepareError) -> Failure {
    let hint = match error {
        PrepareError::Limit { .. } => "nexus doctor shows how to get it; without the flag the run has no such limit",
        PrepareError::Guarantee { .. } => "nexus doctor shows what can be given here",
        PrepareError::Profile { .. } => "use --sandbox untrusted",
        PrepareError::Launcher { .. } => "Nothing was run. Run it again.",
        PrepareError::CoreHandler { reason } => {
            let message = format!("No command can be run here: {reason}");
            return Failure::refused(error.code(), message, "As root: sysctl -w kernel.core_pattern=core");
        }
        PrepareError::Setup(step) => return step_failure(error.code(), step),
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Advice for a sandbox that could not be started.
pub fn start_failure(error: &StartError) -> Failure {
    let hint = match error {
        StartError::Setup(step) => return step_failure(error.code(), step),
        StartError::Limit { .. } => {
            "Wait until programs with keys end, or raise the limit as root: sysctl kernel.keys.maxkeys=2000 \
             kernel.keys.maxbytes=200000"
        }
        StartError::Launcher { .. } => "Nothing was run. Run it again.",
        StartError::WrongDriver { .. } | StartError::Handle { .. } => "remove the state directory's runs",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Advice for a command that did not start.
pub fn not_started_failure(reason: &NotStarted) -> Failure {
    let hint = match reason {
        NotStarted::SetUp { step, errno, .. } => step_hint(step, *errno),
        NotStarted::Proof { .. } => "nothing was run; nexus doctor shows what this machine enforces",
        _ => "nothing was run; nexus doctor shows what works here",
    };
    let code = if matches!(reason, NotStarted::Proof { .. }) { "proof" } else { "set_up" };
    Failure::refused(code, reason.to_string(), hint)
}

fn step_failure(code: &'static str, step: &SetupError) -> Failure {
    let message = format!("setting the sandbox up failed at {step}");
    Failure::refused(code, message, step_hint(&step.step, step.errno))
}

const EPERM: i32 = Errno::PERM.raw_os_error();
const EACCES: i32 = Errno::ACCESS.raw_os_error();
const EDQUOT: i32 = Errno::DQUOT.raw_os_error();
const ELOOP: i32 = Errno::LOOP.raw_os_error();
const ENOENT: i32 = Errno::NOENT.raw_os_error();
const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
const EROFS: i32 = Errno::ROFS.raw_os_error();

fn step_hint(step: &str, errno: i32) -> &'static str {
    match (step, errno) {
        ("clone", EPERM) => "user namespaces are not allowed here; nexus doctor shows the setting",
        ("clone", ENOSPC) => {
            "the limit of namespaces is reached: sysctl user.max_user_namespaces and user.max_net_namespaces"
        }
        ("write_id_map", EPERM) => "user namespaces are restricted here (AppArmor?); nexus doctor shows the setting",
        ("mount_proc", EPERM) => {
            "inside a container the outer /proc must not be masked (docker: --security-opt systempaths=unconfined)"
        }
        ("mount_workspace" | "root_overlay", ENOSPC | EDQUOT) => {
            "the state directory's disk is full: make room there, or set NEXUS_STATE_DIR to a directory on another disk"
        }
        // The kernel gives an overlay that cannot be written instead of an error.
        ("mount_workspace" | "root_overlay", 0) => {
            "the overlay came up read-only: the state directory's disk is full, or its file system cannot carry a layer; set NEXUS_STATE_DIR to a directory on another disk, or use --direct"
        }
        ("mount_workspace" | "root_overlay", _) => {
            "the file system of this directory or of the state directory cannot carry a layer: use a workspace on ext4, xfs or btrfs, or --direct"
        }
        ("idmapped_mounts", _) => {
            "this directory's file system cannot map owners: run as an ordinary user, or use a workspace on ext4, xfs or btrfs"
        }
        ("mount_binds", EACCES | EROFS | ENOENT) => {
            "a bind inside the workspace or another bind needs an existing place to go to"
        }
        ("protect_names", ELOOP) => {
            "a directory on the way to a protected name became a symbolic link: leave --direct out"
        }
        ("make_cgroup" | "enter_cgroup", _) => {
            "the control group cannot be used; nexus doctor shows how to hand one over"
        }
        _ => "nothing was run; nexus doctor shows what works here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_called_full_only_where_it_may_be() {
        for step in ["mount_workspace", "root_overlay"] {
            for errno in [ENOSPC, EDQUOT, 0] {
                assert!(step_hint(step, errno).contains("disk is full"), "{step} {errno}");
            }
            for errno in [EPERM, EACCES, 22] {
                let hint = step_hint(step, errno);
                assert!(!hint.contains("full") && hint.contains("file system"), "{step} {errno}: {hint}");
            }
        }
    }
}
