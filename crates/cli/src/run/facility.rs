//! `nexus run --facility NAME`: a workspace that outlives its runs, kept beside the state directory.

use crate::failure::Failure;
use nexus_facility::{Claim, Facilities, FacilityName, Kind, Lock, LockError, StoreError};
use nexus_model::RunId;
use nexus_model::ids::DirectiveId;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Path at which the workspace of a facility appears inside, as for a directive.
pub const MOUNT: &str = "/workspace";

/// A facility that this run has to itself.
#[derive(Debug)]
pub struct OpenFacility {
    /// The directory of its workspace.
    pub tree: PathBuf,
    /// Held until the run is over. A run that is killed lets go of it.
    _lock: Lock,
}

/// Opens a facility, makes it where it is missing, and takes its lock.
pub fn open(name: &str, all: &Path) -> Result<OpenFacility, Failure> {
    let name: FacilityName = name.parse().map_err(|error: nexus_facility::NameError| {
        Failure::usage("facility", error.to_string(), "a name looks like build-cache")
    })?;
    let failed = |error: &StoreError| {
        Failure::refused(
            error.code(),
            error.to_string(),
            "Nothing was run. Look at the directory, or name another facility.",
        )
    };
    // A clock before 1970 says 1970.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let facility =
        Facilities::open(all).and_then(|all| all.ensure(&name, Kind::Empty, now)).map_err(|error| failed(&error))?;
    // A run here is a claim of its own: it never goes on with an earlier one.
    let claim = Claim { directive: DirectiveId::from_bytes(*RunId::new().as_bytes()), fence: 1 };
    let lock = facility.lock(claim).map_err(|error| match error {
        LockError::Busy { .. } => Failure::refused(
            "facility_busy",
            format!("The facility {name} is in use: another run works in it"),
            "Wait for that run, or name another facility.",
        ),
        other => Failure::refused(other.code(), other.to_string(), "Nothing was run."),
    })?;
    Ok(OpenFacility { tree: facility.tree().to_owned(), _lock: lock })
}
