//! Resource limits of one run. `None` means that no limit was asked for, never "the driver decides".

use serde::{Deserialize, Serialize};

/// Maximum number of processes of a run without a limit of its own.
pub const DEFAULT_PIDS: u32 = 1024;
/// Bytes of stdout and stderr together that are kept for directives and in `--json`.
pub const DEFAULT_MAX_OUTPUT: u64 = 2_000_000;
/// Milliseconds between SIGTERM and SIGKILL at a timeout.
pub const DEFAULT_GRACE_MS: u64 = 10_000;

/// Resources that one run may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all its processes and private file systems, in bytes.
    pub memory_bytes: Option<u64>,
    /// Processor time per second, in millicores (1000 = one processor).
    pub cpu_millis: Option<u32>,
    /// Processes and threads.
    pub pids: u32,
    /// Bytes that it may add to the workspace.
    pub disk_bytes: Option<u64>,
    /// Bytes of each private file system (`/tmp`, HOME, `/dev/shm` together).
    pub scratch_bytes: u64,
}

impl Limits {
    /// No limit but the ones that always hold; `scratch_bytes` is what the machine can spare.
    #[must_use]
    pub fn defaults(scratch_bytes: u64) -> Self {
        Self { memory_bytes: None, cpu_millis: None, pids: DEFAULT_PIDS, disk_bytes: None, scratch_bytes }
    }

    /// Returns whether a cgroup is needed to hold these limits.
    #[must_use]
    pub fn needs_cgroup(&self) -> bool {
        self.memory_bytes.is_some() || self.cpu_millis.is_some()
    }
}
