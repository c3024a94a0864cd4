//! State of this driver in a handle: the label of PID 1 and the control groups of the run.

use crate::name::NAME;
use nexus_driver::{DestroyError, Handle, StartError};
use nexus_jail::cgroup::Group;
use nexus_model::RunId;
use serde::{Deserialize, Serialize};

/// Everything that a sandbox of this driver has on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Name of PID 1 in process lists.
    #[serde(rename = "mark")]
    pub label: String,
    /// Control groups, where a limit needs them.
    pub group: Option<Group>,
    /// First host id of the sandboxes of root when this one was prepared: a setting may have changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_inner: Option<u32>,
}

/// A handle that this driver may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// It names another driver.
    WrongDriver(String),
    /// Its state is damaged, or names what is not of its run.
    State(String),
}

impl State {
    /// Returns the handle with this state.
    pub fn handle(&self, run_id: RunId) -> Result<Handle, serde_json::Error> {
        Ok(Handle::new(NAME, run_id, serde_json::to_vec(self)?))
    }

    /// Reads the state of a handle. A saved handle may be damaged, and must not end the processes of another sandbox: a
    /// label or a directory that is not of the run is refused.
    pub fn read(handle: &Handle) -> Result<Self, Unusable> {
        if handle.driver != NAME {
            return Err(Unusable::WrongDriver(handle.driver.clone()));
        }
        let state: Self =
            serde_json::from_slice(&handle.state.0).map_err(|error| Unusable::State(error.to_string()))?;
        let run = handle.run_id.to_string();
        if state.label != nexus_jail::label(handle.run_id) {
            return Err(Unusable::State(format!("the label {} is not of the run {run}", state.label)));
        }
        let foreign = |group: &Group| group.directories().iter().any(|directory| !directory.ends_with(&run));
        if state.group.as_ref().is_some_and(foreign) {
            return Err(Unusable::State(format!("a control group is not of the run {run}")));
        }
        Ok(state)
    }
}

impl From<Unusable> for StartError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::WrongDriver(found) => Self::WrongDriver { found, expected: NAME.to_owned() },
            Unusable::State(reason) => Self::Handle { reason },
        }
    }
}

impl From<Unusable> for DestroyError {
    fn from(unusable: Unusable) -> Self {
        match unusable {
            Unusable::WrongDriver(found) => Self::WrongDriver { found, expected: NAME.to_owned() },
            Unusable::State(reason) => Self::Handle { reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const RUN: &str = "01a203a1-174b-7163-b170-84affa53de02";
    const OTHER: &str = "01a203a1-175a-763d-a961-2f98e2705f53";

    fn run() -> RunId {
        RUN.parse().unwrap()
    }

    fn of_run(group: Option<Group>) -> State {
        State { label: nexus_jail::label(run()), group, first_inner: None }
    }

    fn below(run: &str) -> PathBuf {
        PathBuf::from("/sys/fs/cgroup/memory/nexus/1000").join(run)
    }

    #[test]
    fn a_state_reads_back_from_its_handle() {
        let groups =
            [None, Some(Group::V2 { path: below(RUN) }), Some(Group::V1 { memory: Some(below(RUN)), cpu: None })];
        for group in groups {
            let state = of_run(group);
            assert_eq!(State::read(&state.handle(run()).unwrap()), Ok(state));
        }
    }

    #[test]
    fn the_ids_of_a_sandbox_are_those_of_its_start() {
        let state = State { first_inner: Some(70_000), ..of_run(None) };
        assert_eq!(State::read(&state.handle(run()).unwrap()).map(|state| state.first_inner), Ok(Some(70_000)));
    }

    /// Handles as the programs before the opaque state wrote them.
    #[test]
    fn a_handle_of_version_1_is_still_read() {
        for (group, expected) in [
            ("null".to_owned(), None),
            (format!(r#"{{"V2":{{"path":"/sys/fs/cgroup/nexus/1000/{RUN}"}}}}"#), {
                Some(Group::V2 { path: format!("/sys/fs/cgroup/nexus/1000/{RUN}").into() })
            }),
            (format!(r#"{{"V1":{{"memory":"/sys/fs/cgroup/memory/nexus/1000/{RUN}","cpu":null}}}}"#), {
                Some(Group::V1 { memory: Some(below(RUN)), cpu: None })
            }),
        ] {
            let saved = format!(
                r#"{{"version":1,"driver":"namespace","run_id":"{RUN}","mark":"nx-84affa53de02","group":{group}}}"#
            );
            let handle: Handle = serde_json::from_str(&saved).unwrap();
            assert_eq!(State::read(&handle), Ok(of_run(expected)), "{saved}");
        }
    }

    #[test]
    fn a_state_that_names_another_run_is_refused() {
        let foreign = [
            State { label: nexus_jail::label(OTHER.parse().unwrap()), group: None, first_inner: None },
            of_run(Some(Group::V2 { path: below(OTHER) })),
            of_run(Some(Group::V1 { memory: Some(below(RUN)), cpu: Some(below(OTHER)) })),
        ];
        for state in foreign {
            let handle = state.handle(run()).unwrap();
            assert!(matches!(State::read(&handle), Err(Unusable::State(_))), "{state:?}");
        }
        assert!(matches!(State::read(&Handle::new(NAME, run(), b"{".to_vec())), Err(Unusable::State(_))));
        let other_driver = Handle::new("another", run(), serde_json::to_vec(&of_run(None)).unwrap());
        assert_eq!(State::read(&other_driver), Err(Unusable::WrongDriver("another".to_owned())));
    }
}
