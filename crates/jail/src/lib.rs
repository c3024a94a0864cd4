//! The namespace launcher of Nexus.
//!
//! Start with [`launch()`] (the parent's half) and `child` (the half inside the new namespaces); [`steps`] lists
//! every step by name. `unsafe` is allowed here for the few system calls that no library offers.

mod apart;
mod begun;
pub mod cgroup;
mod child;
pub mod clone;
mod creds;
mod descriptors;
pub mod disposition;
mod etc;
mod identity;
mod idmap;
mod kept;
mod keyring;
pub mod launch;
pub mod lease;
pub mod leave_out;
mod memory;
mod mounts;
mod net;
mod netpool;
mod order;
mod overlay;
mod places;
mod prepare;
mod quotas;
mod rootfs;
pub mod seccomp;
pub mod steps;
mod system;
mod template;
mod walls;
pub mod watch;

pub use descriptors::hand_on_nothing;
pub use identity::{DEFAULT_UID_BASE, Identity};
pub use kept::Kept;
pub use launch::{Launched, Request, Setup, host_namespaces, launch};
pub use leave_out::Wall;
pub use netpool::{Keep, Network};
pub use steps::{Faults, Step, StepError};
pub use walls::{LEAST_ABI, landlock_abi};

/// The name of PID 1 of a run in process lists, at most 15 bytes: from the random part of the id.
#[must_use]
pub fn mark(run: nexus_model::RunId) -> String {
    let id = run.to_string();
    format!("nx-{}", &id[id.len() - 12..])
}

#[cfg(test)]
#[path = "../../../tests/support/skip.rs"]
mod skip;
