//! Facts about the host that a probe needs to attack it: names, numbers and paths that the suite prepared.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Written by the suite into the workspace, read by the probe.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Unique per column; part of every name that the suite makes on the host.
    pub token: String,
    /// The workspace, at its real path.
    pub workspace: PathBuf,
    /// A directory handed in with `--ro`; world writable on the host, so only the sandbox can refuse.
    pub read_only: PathBuf,
    /// A readable file in the caller's home.
    pub canary_home: PathBuf,
    /// A readable file in the host's `/tmp`.
    pub canary_tmp: PathBuf,
    /// A readable file beside the workspace.
    pub canary_side: PathBuf,
    /// A process of the host that runs throughout.
    pub host_pid: i32,
    /// A word in that process's arguments.
    pub host_label: String,
    /// A word in the environment of the caller that must not come in.
    pub secret: String,
    /// Inode of each namespace of the host.
    pub namespaces: BTreeMap<String, u64>,
    /// Name of an abstract socket that listens on the host.
    pub abstract_socket: String,
    /// Path sockets that listen on the host.
    pub sockets: BTreeMap<String, PathBuf>,
    /// Key of the SysV objects.
    pub ipc_key: i32,
    /// Id of the shared memory segment.
    pub shm_id: i32,
    /// A writable directory handed in with `--rw`.
    pub read_write: PathBuf,
    /// Names in the workspace that `--hide` covers: a file and a directory.
    pub hidden: Vec<PathBuf>,
    /// Description of a key in the caller's session keyring; empty where the kernel has no keyrings.
    pub key: String,
    /// Set when the suite gave the driver supplementary groups that the driver can drop.
    pub has_groups: bool,
    /// Name of the POSIX message queue, with its slash.
    pub mqueue: String,
    /// Descriptors above 2 that were open when the probe started; found by the probe, not by the suite.
    #[serde(skip)]
    pub leaked: Vec<i32>,
}

/// Descriptors above 2 that this process was started with. Must be called before anything is opened.
pub fn inherited_descriptors() -> Vec<i32> {
    (3..1024).filter(|fd| crate::sys::call(libc::SYS_fcntl, &[*fd as usize, libc::F_GETFD as usize]).is_ok()).collect()
}
