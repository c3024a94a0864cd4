//! Attempts that a process in a sandbox of this driver makes just before its exec, and the answers that are allowed.
//!
//! Each part of the confinement has one at least: one that gives another answer ends the launch. The guest knows how to
//! make them (`proof` of `nexus-guest`).

use nexus_model::Plan;
use nexus_model::network::Network;
use nexus_model::proof::Expectation;

/// Returns the expectations of a sandbox: `uid_map` as `/proc/self/uid_map` must read, with single spaces, and the inode
/// numbers of the host's namespaces by name, from which the command's must differ.
pub fn of(plan: &Plan, uid_map: &str, host_namespaces: &[(String, u64)]) -> Vec<Expectation> {
    // With an egress every address is local: what is sent stays on the sandbox's own loopback.
    let network = match plan.network {
        Network::None => "ENETUNREACH",
        Network::Egress | Network::EgressByProgram => "loopback",
    };
    let fixed = [
        Expectation::new("write_root", "EROFS|EACCES"),
        Expectation::new("write_system", "EROFS|EACCES"),
        Expectation::new("open_host_marker", "ENOENT").about(plan.canary.clone()),
        Expectation::new("write_proc_sys", "EROFS|EACCES"),
        Expectation::new("socket_packet", "EAFNOSUPPORT"),
        Expectation::new("reach_network", network),
        Expectation::new("new_user_namespace", "EPERM"),
        Expectation::new("mount", "EPERM"),
        Expectation::new("read_keyring", "EPERM|ENOSYS"),
        Expectation::new("capabilities", "none"),
        Expectation::new("no_new_privs", "true"),
        Expectation::new("seccomp", "filter"),
        Expectation::new("core_limit", &nexus_jail::core_limit().to_string()),
        Expectation::new("uid_map", uid_map),
        Expectation::new("root_flags", "ro,nosuid,nodev"),
        Expectation::new("workspace_flags", "rw,nosuid,nodev").about(plan.workspace.target.clone()),
    ];
    let namespaces = host_namespaces.iter().map(|(kind, inode)| {
        Expectation::new(&format!("namespace_{kind}"), "own").about(inode.to_string().as_str().into())
    });
    fixed.into_iter().chain(namespaces).collect()
}
