//! Finds the guarantees that this machine lets the namespace driver give, and advice for those that it does not.

use crate::core_pattern;
use crate::name::NAME;
use nexus_driver::{Finding, Missing, ProbeReport};
use nexus_jail::MIN_ABI;
use nexus_jail::cgroup::{Hierarchies, OwnGroups, Wanted};
use nexus_model::Guarantee;
use std::path::Path;

/// Looks; changes nothing.
pub fn report(uid: u32, landlock_abi: i32, pattern: &Path) -> ProbeReport {
    let hierarchies = Hierarchies::read().unwrap_or_default();
    let own = OwnGroups::read().unwrap_or_default();
    let limit = |memory: bool, cpu: bool| {
        nexus_jail::cgroup::find(&hierarchies, &own, Wanted { memory, cpu }, uid, "probe").map(drop)
    };
    let findings = Guarantee::ALL
        .iter()
        .map(|guarantee| {
            let (held, fix) = finding(*guarantee, uid, &limit);
            let (given, reason) = match held {
                Ok(how) => (true, how.to_owned()),
                Err(why) => (false, why),
            };
            let commands = if given { Vec::new() } else { commands(*guarantee, &hierarchies, uid) };
            Finding { guarantee: *guarantee, given, reason, fix: if given { None } else { fix }, commands }
        })
        .collect();
    ProbeReport { driver: NAME, missing: missing(uid, landlock_abi, pattern), findings }
}

type Held = Result<&'static str, String>;

fn finding(guarantee: Guarantee, uid: u32, limit: &dyn Fn(bool, bool) -> Result<(), String>) -> (Held, Option<String>) {
    let later = |what: &str| (Err(what.to_owned()), None);
    match guarantee {
        Guarantee::FsWorkspaceOnly => (Ok("private root, Landlock"), None),
        Guarantee::FsReadOnlySystem => (Ok("read-only mounts, Landlock"), None),
        Guarantee::NetNone => (Ok("own network namespace with loopback only"), None),
        Guarantee::NetDestinationChecked => (
            Ok("own network namespace, every connection redirected to the egress (nf_tables; seen at the launch)"),
            None,
        ),
        Guarantee::KernelSeparate => later("namespaces share the host's kernel; a microVM does not"),
        Guarantee::LimitsMemory => (limit(true, false).map(|()| "control group"), Some(hand_over(uid, "memory"))),
        Guarantee::LimitsCpu => (limit(false, true).map(|()| "control group"), Some(hand_over(uid, "cpu"))),
        Guarantee::LimitsPids => (Ok("RLIMIT_NPROC in the sandbox's own user namespace"), None),
        Guarantee::LimitsDisk => (Ok("a layer in memory of fixed size, or measuring and killing"), None),
        Guarantee::KillComplete => (Ok("own pid namespace"), None),
        Guarantee::SeccompFiltered => (Ok("system-call filter"), None),
        Guarantee::IpcIsolated => (Ok("own ipc and network namespace"), None),
        Guarantee::KeyringIsolated => (Ok("own session keyring, keyctl refused"), None),
    }
}

/// Returns the commands that give a guarantee on this machine.
fn commands(guarantee: Guarantee, hierarchies: &Hierarchies, uid: u32) -> Vec<String> {
    let wanted = match guarantee {
        Guarantee::LimitsMemory => Wanted { memory: true, cpu: false },
        Guarantee::LimitsCpu => Wanted { memory: false, cpu: true },
        _ => return Vec::new(),
    };
    // Root makes its own groups, and where it cannot no command of ours helps.
    if uid == 0 { Vec::new() } else { nexus_jail::cgroup::hand_over(hierarchies, wanted, uid) }
}

fn hand_over(uid: u32, controller: &str) -> String {
    let directory = format!("/sys/fs/cgroup/{controller}/nexus/{uid}");
    format!(
        "as root: mkdir -p {directory} && chown -R {uid} {directory}   (cgroup v1; where there is only v2: the same for nexus/{uid} \
         below its mount, with +memory +cpu in cgroup.subtree_control of each directory above)"
    )
}

/// Returns the requirements for running anything at all that this machine does not meet.
fn missing(uid: u32, landlock_abi: i32, pattern: &Path) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut add = |what: &str, reason: String, fix: &str, commands: &[&str]| {
        let commands = commands.iter().map(|&command| command.to_owned()).collect();
        missing.push(Missing { what: what.to_owned(), reason, fix: fix.to_owned(), commands });
    };
    let read = |path: &str| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    if landlock_abi < MIN_ABI {
        let reason = format!("Landlock version {landlock_abi}, at least {MIN_ABI} is needed");
        add("Landlock", reason, "boot Linux 5.19 or newer with landlock in the lsm= list", &[]);
    }
    if let Err(reason) = core_pattern::check(pattern, nexus_jail::core_limit()) {
        add("core files that stay inside", reason, core_pattern::FIX, &["sysctl -w kernel.core_pattern=core"]);
    }
    if read("/proc/sys/user/max_user_namespaces").is_ok_and(|text| text == "0") {
        let fix = "sysctl -w user.max_user_namespaces=10000";
        add("user namespaces", "user.max_user_namespaces is 0".to_owned(), fix, &[fix]);
    }
    if uid != 0 && read("/proc/sys/kernel/unprivileged_userns_clone").is_ok_and(|text| text == "0") {
        let reason = "kernel.unprivileged_userns_clone is 0".to_owned();
        let fix = "sysctl -w kernel.unprivileged_userns_clone=1";
        add("user namespaces", reason, fix, &[fix]);
    }
    if uid != 0 && read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_ok_and(|text| text == "1") {
        let reason = "AppArmor lets only listed programs make user namespaces".to_owned();
        let fix = "install an AppArmor profile for nexus that has the rule `userns,`, or \
                   sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
        add("user namespaces", reason, fix, &["sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"]);
    }
    if !std::fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("overlay")) {
        add(
            "overlayfs",
            "not in /proc/filesystems".to_owned(),
            "modprobe overlay (or use --direct)",
            &["modprobe overlay"],
        );
    }
    missing
}
