//! Everything that a driver will touch, in a form that survives a crash of its user.
//!
//! ```text
//!  version 1  { version, driver, run_id, mark, group }     the fields of the namespace driver beside the common ones
//!  version 2  { version, driver, run_id, state }           each driver writes and reads its own state
//! ```
//! Version 1 is still read: its further fields, as a JSON object, are the state.

use nexus_model::{ByteText, RunId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The form that this code writes.
pub const HANDLE_VERSION: u32 = 2;

/// The form in which the state of the namespace driver stood beside the common fields.
const WITHOUT_STATE: u32 = 1;

/// Name in the place of a driver, in the handle of a run that has nothing on the host.
const NOTHING: &str = "none";

/// Everything that one sandbox will have on the host. Saved before anything is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Saved")]
pub struct Handle {
    /// Version of the form; a reader refuses one that it does not know.
    pub version: u32,
    /// Name of the driver that made it.
    pub driver: String,
    /// Run whose sandbox it is.
    pub run_id: RunId,
    /// Bytes that only the driver reads.
    pub state: ByteText,
}

impl Handle {
    /// Makes the handle of a driver.
    #[must_use]
    pub fn new(driver: &str, run_id: RunId, state: Vec<u8>) -> Self {
        Self { version: HANDLE_VERSION, driver: driver.to_owned(), run_id, state: ByteText(state) }
    }

    /// A handle of a run of which the host has no process and no control group any more: only its layer.
    #[must_use]
    pub fn of_nothing(run_id: RunId) -> Self {
        Self::new(NOTHING, run_id, Vec::new())
    }

    /// Reports whether the run has nothing on the host, so that no driver is asked.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.driver == NOTHING
    }
}

/// Every form of a handle that may be on a disk.
#[derive(Deserialize)]
struct Saved {
    version: u32,
    driver: String,
    run_id: RunId,
    state: Option<ByteText>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A saved handle cannot be read.
#[derive(Debug, thiserror::Error)]
enum HandleError {
    #[error("version {0} of a handle is not known")]
    Version(u32),
    #[error("a handle of version {0} has no state")]
    NoState(u32),
}

impl TryFrom<Saved> for Handle {
    type Error = HandleError;

    fn try_from(saved: Saved) -> Result<Self, HandleError> {
        let Saved { version, driver, run_id, state, rest } = saved;
        let state = match (version, state) {
            (WITHOUT_STATE, _) => ByteText(Value::Object(rest).to_string().into_bytes()),
            (HANDLE_VERSION, Some(state)) => state,
            (HANDLE_VERSION, None) => return Err(HandleError::NoState(version)),
            (other, _) => return Err(HandleError::Version(other)),
        };
        Ok(Self { version: HANDLE_VERSION, driver, run_id, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "01a203a1-174b-7163-b170-84affa53de02";

    #[test]
    fn a_handle_reads_back_with_any_state() {
        let run = RUN.parse().unwrap();
        for state in [Vec::new(), b"{}".to_vec(), vec![0xff, 0, 1]] {
            let handle = Handle::new("some", run, state);
            let json = serde_json::to_string(&handle).unwrap();
            assert_eq!(serde_json::from_str::<Handle>(&json).unwrap(), handle);
        }
    }

    #[test]
    fn the_fields_of_version_1_become_the_state() {
        let old =
            format!(r#"{{"version":1,"driver":"namespace","run_id":"{RUN}","mark":"nx-84affa53de02","group":null}}"#);
        let handle: Handle = serde_json::from_str(&old).unwrap();
        assert_eq!((handle.version, handle.driver.as_str()), (HANDLE_VERSION, "namespace"));
        let state: Value = serde_json::from_slice(&handle.state.0).unwrap();
        assert_eq!(state, serde_json::json!({"mark": "nx-84affa53de02", "group": null}));
    }

    #[test]
    fn a_handle_of_another_version_or_without_state_is_refused() {
        for fields in [r#""version":3,"state":{"text":""}"#, r#""version":2"#, r#""version":0"#] {
            let json = format!(r#"{{{fields},"driver":"namespace","run_id":"{RUN}"}}"#);
            assert!(serde_json::from_str::<Handle>(&json).is_err(), "{json}");
        }
    }
}
