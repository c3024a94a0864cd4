//! Sets up sandboxes of namespaces. The process that does it is the launcher; see the glossary.
//!
//! ```text
//!  launcher/  the parent's half: on the host, before the clone and beside the child
//!  inside/    the child's half: in the new namespaces, from its first instruction to the guest
//!  seccomp/   the system-call filter: a profile, its tree, its compiler
//!  net/       the network of a sandbox, by netlink
//! ```
//! Start with [`launch()`]. The files beside the four directories serve both halves; [`steps`] names every step of both.
//! `unsafe` is allowed here for the few system calls that no library offers.

pub mod cgroup;
pub mod clone;
mod creds;
mod descriptors;
pub mod disposition;
mod identity;
mod inside;
mod launch_message;
mod launcher;
pub mod lease;
pub mod leave_out;
mod memory;
mod mount_table;
mod mount_targets;
mod mounts;
mod net;
mod overlay;
pub mod overlay_watch;
pub mod peer;
mod quotas;
mod request;
pub mod seccomp;
pub mod steps;

pub use descriptors::hand_on_nothing;
pub use identity::{DEFAULT_UID_BASE, Identity, MIN_UID_BASE};
pub use inside::confinement::{MIN_ABI, landlock_abi};
pub use launcher::launch::{Launched, host_namespaces, launch};
pub use launcher::netpool::{Network, PoolConfig};
pub use launcher::state::LauncherState;
pub use launcher::template::fits_plan as fits_template;
pub use leave_out::Wall;
pub use quotas::core_limit;
pub use request::{Request, Setup};
pub use steps::{Faults, Step, StepError};

/// The name of PID 1 of a run in process lists, at most 15 bytes: from the random part of the id.
#[must_use]
pub fn label(run: nexus_model::RunId) -> String {
    let id = run.to_string();
    format!("nx-{}", &id[id.len() - 12..])
}

#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
