//! Everything that a driver will touch, in a form that survives a crash of its user.

use nexus_jail::cgroup::Group;
use nexus_model::RunId;
use serde::{Deserialize, Serialize};

/// Everything that one sandbox will have on the host. Saved before anything is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handle {
    /// Version of the form; a reader refuses one that it does not know.
    pub version: u32,
    /// Name of the driver that made it.
    pub driver: String,
    /// For which run.
    pub run_id: RunId,
    /// Name of PID 1 in process lists.
    pub mark: String,
    /// Its control groups.
    pub group: Option<Group>,
}

impl Handle {
    /// A handle of a run of which the host has no process and no control group any more: only its layer.
    #[must_use]
    pub fn of_nothing(run_id: RunId) -> Self {
        let driver = crate::namespace::name::NAME.to_owned();
        Self { version: HANDLE_VERSION, driver, run_id, mark: nexus_jail::mark(run_id), group: None }
    }

    /// Reports whether this names what is of that run and nothing else. A saved handle may be damaged, and must not kill
    /// the processes of another sandbox.
    #[must_use]
    pub fn is_of(&self, run: RunId) -> bool {
        let id = run.to_string();
        let directories = self.group.iter().flat_map(Group::directories).all(|directory| directory.ends_with(&id));
        directories && Self { group: None, ..self.clone() } == Self::of_nothing(run)
    }
}

/// The form that this code writes.
pub const HANDLE_VERSION: u32 = 1;
