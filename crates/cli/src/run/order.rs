//! Turns flags into a plan, and a driver's refusal into advice.

use super::ask;
use super::facility::{self, OpenFacility};
use super::input::{self, Input, InputFlags};
use crate::args::{Changes, RunArgs, Sandbox};
use crate::failure::Failure;
use crate::net::ask as net_ask;
use crate::net::host_port::{refuse_loopback_rules, refuse_ports_of_nexus};
use crate::profile::resolution::Resolution;
use crate::request;
use crate::terminal::Hold;
use crate::used_up;
use nexus_driver::frames::ExecStage;
use nexus_driver::{NotStarted, PrepareError, SetupError, StartError};
use nexus_model::Guarantee;
use nexus_model::limits::DEFAULT_MAX_OUTPUT;
use nexus_policy::document::Effective;
use nexus_policy::profile::{NetMode, Toolchain};
use nexus_runner::plan::resolve::{ResolvedRun, resolve};
use nexus_runner::plan::site::Site;
use nexus_runner::request::ChangeMode;
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::searches;
use rustix::io::Errno;
use std::sync::Arc;

/// Everything about a run that the flags say.
pub struct Order {
    /// The run, as the engine takes it.
    pub run: ResolvedRun,
    /// The way of standard input to the command.
    pub input: Input,
    /// Bytes of output that are kept.
    pub max_output: Option<u64>,
    /// The line of the workspace's own file that keeps the changes out of the workspace.
    pub changes_by_file: Option<String>,
    /// First host uid of sandboxes that root starts.
    pub uid_base: u32,
    /// Keeps the output of the command off the terminal while a question is open.
    pub hold: Option<Arc<Hold>>,
    /// Toolchains that profiles ask for.
    pub toolchains: Vec<Toolchain>,
    /// Shows the toolchains that the caller's PATH leads to.
    pub shows_auto: bool,
    /// Policy documents that hold for the run.
    pub policies: Effective,
    /// Keeps other runs out of the facility until this one is over.
    _facility: Option<OpenFacility>,
}

impl Order {
    /// Reads the flags and looks at the paths that they name.
    pub fn read(args: &RunArgs) -> Result<Self, Failure> {
        refuse_what_is_not_here(args)?;
        refuse_input_that_cannot_be_read(args)?;
        let host = crate::host::here();
        let facility = match &args.facility {
            Some(name) => Some(facility::open(name, &facility::directory(&StateDir::find(&host)?))?),
            None => None,
        };
        let named = facility.as_ref().map(|facility| facility.tree.as_path()).or(args.workspace.as_deref());
        let site = Site::open(crate::host::choice(named)?, &host)?;
        let resolution = Resolution::of(args, &site.workspace, &site.places)?;
        let grants = &resolution.grants;
        refuse_what_a_network_breaks(args, &resolution)?;
        refuse_loopback_rules(&grants.net)?;
        let host_ports: Vec<u16> = grants.net.host_ports.iter().map(|port| port.value).collect();
        refuse_ports_of_nexus(&host_ports)?;
        let run = resolve(site, &request::of(args, &resolution)?, &host)?;
        if let Some(searches) = resolution.searches.changed()
            && let Err(error) = searches::write(&run.site.places.state, &searches)
        {
            // The next run searches again.
            tracing::debug!(errno = error.raw_os_error(), "the searches for logins could not be kept");
        }
        request::warn(&run.notices);
        for cache in &run.written_caches {
            crate::notices::tell(&format!(
                "Later builds of yours, also outside of a sandbox, execute what the command writes to {}; --cache keeps downloads for runs \
                 in this workspace alone.",
                cache.display()
            ));
        }
        // A policy denies what may come to be there one day.
        let of_policies = resolution.settings.egress.policies.denied_in_workspace();
        let is_policys = |pattern: &String| {
            of_policies
                .iter()
                .filter_map(|denied| denied.value.in_workspace())
                .any(|path| format!("/{path}") == *pattern)
        };
        for pattern in run.hides_nothing.iter().filter(|pattern| !is_policys(pattern)) {
            crate::notices::tell(&format!("--hide {pattern} matched nothing in the workspace, so it hides nothing."));
        }
        let changes_by_file = match run.changes {
            ChangeMode::Discard | ChangeMode::Review => {
                resolution.changes_by_file(&run.site.workspace).map(ToString::to_string)
            }
            ChangeMode::Commit | ChangeMode::Ask => None,
        };
        let input = InputFlags { tty: args.tty, stdin: args.stdin, no_stdin: args.no_stdin };
        Ok(Self {
            input: Input::of(input, rustix::stdio::stdin()),
            changes_by_file,
            max_output: run.max_output.or(args.json.then_some(DEFAULT_MAX_OUTPUT)),
            uid_base: resolution
                .settings
                .uid_base
                .as_ref()
                .map_or(nexus_driver_namespace::DEFAULT_UID_BASE, |base| base.value),
            toolchains: grants.toolchains.iter().map(|asked| asked.value).collect(),
            shows_auto: grants.shows_auto(),
            hold: net_ask::hold(run.network.as_ref())?,
            policies: resolution.settings.egress.policies.clone(),
            run,
            _facility: facility,
        })
    }
}

/// Refuses flags that this version does not support, and questions without a terminal to ask them on.
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
    if args.net.ask && (args.json || args.stdin || args.tty || args.detach || !net_ask::is_possible()) {
        let message = "--ask needs a terminal for itself: not with --json, --stdin, --tty or --detach";
        return Err(Failure::usage("ask", message, "name the destinations with --allow"));
    }
    Ok(())
}

/// Refuses a standard input of which no byte can be read, where the caller asked for it. The command would have run before that is
/// found.
fn refuse_input_that_cannot_be_read(args: &RunArgs) -> Result<(), Failure> {
    let is_asked = args.stdin && !args.tty && !args.detach;
    match input::unreadable(rustix::stdio::stdin()).filter(|_| is_asked) {
        None => Ok(()),
        Some(why) => {
            let message = format!("--stdin: standard input cannot be read: {why}");
            Err(Failure::refused("input", message, "Give it a file or a pipe, or leave --stdin out."))
        }
    }
}

/// Refuses a run inside a sandbox, where the calls for another one are refused. `CYBROS_NEXUS=1` alone does not prove
/// that this process is inside, and another program may have set a filter of system calls; both together are enough
/// for a message.
fn refuse_inside() -> Result<(), Failure> {
    let marked = std::env::var_os("CYBROS_NEXUS").is_some_and(|value| value == "1");
    let filtered = || rustix::thread::secure_computing_mode() == Ok(rustix::thread::SecureComputingMode::Filter);
    if marked && filtered() {
        let message = "This command runs inside a sandbox of Nexus already (CYBROS_NEXUS=1), and there is no sandbox in a sandbox";
        return Err(Failure::refused("inside", message, "Call the program itself, without nexus run."));
    }
    Ok(())
}

/// Refuses a network that breaks a guarantee which the user requires: a flag must not give it up silently.
fn refuse_what_a_network_breaks(args: &RunArgs, resolution: &Resolution) -> Result<(), Failure> {
    if resolution.network.is_some() && args.require.contains(&Guarantee::NetNone) {
        let mode = resolution.grants.net.mode.as_ref().filter(|mode| mode.value != NetMode::None);
        let opened = mode.map_or_else(|| "--allow-host-port".to_owned(), |mode| mode.from.to_string());
        let message = format!("{opened} opens the network, and --require net.none forbids it");
        return Err(Failure::usage("require", message, "use --net none, or --require net.destination_checked"));
    }
    Ok(())
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
        StartError::Launcher { .. } => {
            "Nothing was run. Run it again; nexus warm --stop ends a launcher that does not answer."
        }
        StartError::WrongDriver { .. } | StartError::Handle { .. } => "remove the state directory's runs",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Advice for a command that did not start.
pub fn not_started_failure(reason: &NotStarted) -> Failure {
    let hint = match reason {
        NotStarted::SetUp { step, errno, .. } => step_hint(step, *errno),
        NotStarted::Exec { stage: ExecStage::Spawn, errno } => {
            used_up::advice_for_process(*errno).unwrap_or(NOTHING_RUN)
        }
        NotStarted::Silent { .. } => {
            "A process outside stopped or froze the sandbox, a mount does not answer, or this machine is very slow. Run it again."
        }
        NotStarted::Proof { .. } => "nothing was run; nexus doctor shows what this machine enforces",
        _ => NOTHING_RUN,
    };
    let code = if matches!(reason, NotStarted::Proof { .. }) { "proof" } else { "set_up" };
    Failure::refused(code, reason.to_string(), hint)
}

fn step_failure(code: &'static str, step: &SetupError) -> Failure {
    let message = format!("setting the sandbox up failed at {step}");
    Failure::refused(code, message, step_hint(&step.step, step.errno))
}

/// Advice where nothing more is known.
const NOTHING_RUN: &str = "nothing was run; nexus doctor shows what works here";

const EPERM: i32 = Errno::PERM.raw_os_error();
const EACCES: i32 = Errno::ACCESS.raw_os_error();
const EDQUOT: i32 = Errno::DQUOT.raw_os_error();
const ELOOP: i32 = Errno::LOOP.raw_os_error();
const ENOENT: i32 = Errno::NOENT.raw_os_error();
const ENOTDIR: i32 = Errno::NOTDIR.raw_os_error();
const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
const EROFS: i32 = Errno::ROFS.raw_os_error();

fn step_hint(step: &str, errno: i32) -> &'static str {
    let is_used_up = if step == "clone" { used_up::advice_for_process(errno) } else { used_up::advice(errno) };
    if let Some(advice) = is_used_up {
        return advice;
    }
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
        // Of these, nexus doctor knows nothing: they are about the paths of this run.
        ("hide_paths" | "open_binds", 0 | ENOENT | ELOOP | ENOTDIR) => {
            "nothing was run, so that the command reaches nothing that is to be kept from it. Another run or a program changes the directory meanwhile: run it again, and while that goes on, wait for the other run or end it (nexus ps)"
        }
        ("hide_paths", _) => {
            "nothing was run: the command would have reached this path. Leave out the --ro, --rw or --hide that it belongs to, or move the path elsewhere"
        }
        ("open_binds", _) => "nothing was run: look at the rights of this path, or leave its --ro or --rw out",
        ("open_workspace", _) => {
            "nothing was run: the directory was moved, replaced or closed meanwhile. Look at it, and run it again"
        }
        ("protect_names", 0 | ENOENT | ENOTDIR) => {
            "nothing was run: a program changes the directory meanwhile. Run it again"
        }
        ("make_cgroup" | "enter_cgroup", _) => {
            "the control group cannot be used; nexus doctor shows how to hand one over"
        }
        _ => NOTHING_RUN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_named_whatever_step_it_stops() {
        for step in ["idmapped_mounts", "idmap_namespace", "mount_workspace", "root_overlay", "make_cgroup", "clone"] {
            for (errno, what) in
                [(Errno::MFILE, "ulimit -n"), (Errno::NFILE, "fs.file-max"), (Errno::NOMEM, "no memory left")]
            {
                let hint = step_hint(step, errno.raw_os_error());
                assert!(hint.contains(what) && !hint.contains("file system"), "{step} {errno}: {hint}");
            }
        }
        let again = Errno::AGAIN.raw_os_error();
        assert!(step_hint("clone", again).contains("ulimit -u"));
        let spawn = NotStarted::Exec { stage: ExecStage::Spawn, errno: again };
        assert!(not_started_failure(&spawn).hint.contains("ulimit -u"));
        assert!(step_hint("idmapped_mounts", Errno::INVAL.raw_os_error()).contains("cannot map owners"));
    }

    #[test]
    fn doctor_is_not_named_where_it_knows_nothing() {
        for step in ["hide_paths", "open_binds"] {
            for errno in [0, ENOENT, ELOOP, ENOTDIR] {
                let hint = step_hint(step, errno);
                assert!(hint.contains("nothing was run") && hint.contains("run it again"), "{step} {errno}: {hint}");
                assert!(!hint.contains("doctor"), "{step} {errno}: {hint}");
            }
        }
        for step in ["hide_paths", "open_binds", "open_workspace"] {
            for errno in [EACCES, EPERM, Errno::NAMETOOLONG.raw_os_error(), Errno::BUSY.raw_os_error()] {
                let hint = step_hint(step, errno);
                assert!(hint.contains("nothing was run") && !hint.contains("doctor"), "{step} {errno}: {hint}");
            }
        }
        assert!(step_hint("seccomp", Errno::INVAL.raw_os_error()).contains("doctor"));
    }

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
