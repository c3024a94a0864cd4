//! What a driver will touch, in a form that survives a crash of its user.

use nexus_jail::cgroup::Group;
use nexus_model::RunId;
use serde::{Deserialize, Serialize};

/// Everything that one sandbox will have on the host. Saved before anything is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// Which form this is; a reader refuses one that it does not know.
    pub version: u32,
    /// Whose.
    pub driver: String,
    /// For which run.
    pub run_id: RunId,
    /// Name of PID 1 in process lists.
    pub mark: String,
    /// Its control groups.
    pub group: Option<Group>,
}

/// The form that this code writes.
pub const HANDLE_VERSION: u32 = 1;
