//! Advice for a sandbox or a command that could not be started: what the driver refuses, and at which step.

use crate::failure::Failure;
use crate::used_up;
use nexus_driver::frames::ExecStage;
use nexus_driver::{NotStarted, PrepareError, SetupError, StartError};
use rustix::io::Errno;

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
