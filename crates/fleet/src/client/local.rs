//! A facility of `nexus run --facility` on this machine, held for work on it as a whole.
//!
//! ```text
//!  held ─ no run works in it ─▶ no commit into it is interrupted ─▶ no commit into it goes on ─▶ the work
//! ```
//! `nexus changes accept` commits into the tree without the lock of the facility; the lock of commits keeps it away.

use crate::failure::Failure;
use nexus_facility::{Facilities, Facility, FacilityName, Lock, LockError, Snapshots, StateError, StoreError};
use nexus_layer::Workspace;
use nexus_runner::recover::interrupted::Interrupted;
use nexus_runner::review::waiting;
use nexus_runner::state::commit_lock::{self, CommitLock};
use nexus_runner::state::directory::StateDir;
use nexus_runner::state::identity::DirectoryId;

/// The facilities of this user on this machine.
pub struct Local {
    places: StateDir,
    interrupted: Vec<Interrupted>,
    /// All of them.
    pub facilities: Facilities,
}

/// A facility that nothing else works in.
pub struct Held {
    /// The facility that is held.
    pub facility: Facility,
    // Commits may go on before a run may.
    _commits: CommitLock,
    _lock: Lock,
}

impl Local {
    /// Opens the facilities, and clears up after killed commands.
    pub fn open() -> Result<Self, Failure> {
        let places = nexus_caller::host::ready_state_dir()?;
        let interrupted = crate::recovery::inspect(&places)?;
        let facilities = Facilities::open(&nexus_facility::beside(&places.state)).map_err(|error| of_store(&error))?;
        Ok(Self { places, interrupted, facilities })
    }

    /// Names the snapshots of all of them.
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots::of(&self.facilities).with_leases(nexus_driver_namespace::read_lease)
    }

    /// Opens a facility for reading of what it keeps.
    pub fn get(&self, name: &str) -> Result<Facility, Failure> {
        self.facilities.get(&name_of(name)?).map_err(|error| of_store(&error))
    }

    /// Opens a facility and keeps runs and commits out of it.
    pub fn hold(&self, name: &str) -> Result<Held, Failure> {
        let facility = self.get(name)?;
        let lock = facility.hold().map_err(|error| match error {
            LockError::Busy { .. } => Failure::refused(
                "facility_busy",
                format!("The facility {name} is in use: a run works in it"),
                "Wait for that run, or end it: nexus ps lists those that were detached.",
            ),
            other => of_store(&StoreError::Lock(other)),
        })?;
        let id = Self::directory(&facility)?;
        if let Some(one) = self.interrupted.iter().find(|one| one.touches(facility.tree(), id)) {
            return Err(Failure::refused("commit_interrupted", one.text(), ""));
        }
        let commits = commit_lock::lock(&self.places, id).map_err(|error| cannot(&facility, &error))?;
        Ok(Held { facility, _commits: commits, _lock: lock })
    }

    /// Refuses where changes of earlier runs wait for a decision: they are for the directory that a restore replaces.
    pub fn refuse_waiting_changes(&self, facility: &Facility) -> Result<(), Failure> {
        let id = Self::directory(facility)?;
        let waiting = waiting::all(&self.places, &self.interrupted, &crate::notices::print)?;
        match waiting.iter().find(|one| one.directory == id || one.workspace == facility.tree()) {
            None => Ok(()),
            Some(one) => Err(Failure::refused(
                "changes_waiting",
                format!("Changes of the run {} wait for a decision, and are for the present state", one.run),
                format!("nexus changes accept --run {0} or reject --run {0} decides about them.", one.run),
            )),
        }
    }

    fn directory(facility: &Facility) -> Result<DirectoryId, Failure> {
        let opened = Workspace::open(facility.tree()).map_err(|error| cannot(facility, &error))?;
        DirectoryId::of_open(&opened).map_err(|error| cannot(facility, &error))
    }
}

fn cannot(facility: &Facility, error: &dyn std::fmt::Display) -> Failure {
    Failure::refused("facility", format!("The facility {} cannot be used: {error}", facility.name), "")
}

/// Reads the name of a facility.
pub fn name_of(text: &str) -> Result<FacilityName, Failure> {
    text.parse().map_err(|error: nexus_facility::NameError| {
        Failure::usage("facility", error.to_string(), "a name looks like build-cache")
    })
}

fn of_store(error: &StoreError) -> Failure {
    let hint = match error {
        StoreError::Missing { .. } => "nexus run --facility NAME makes one; nexus facility ls lists those of a fleet.",
        StoreError::Exists { .. } => "Name another one.",
        StoreError::Mounted { .. } => "Nothing was changed. Unmount it first.",
        _ => "",
    };
    Failure::refused(error.code(), error.to_string(), hint)
}

/// Turns an error about snapshots into a failure with advice.
pub fn of_states(error: &StateError) -> Failure {
    let code = error.code();
    let hint = match error {
        StateError::Facility(error) => return of_store(error),
        StateError::Label { .. } => {
            return Failure::usage(code, error.to_string(), "a label looks like before-upgrade");
        }
        StateError::Unknown { facility, .. } => format!("nexus facility snapshots {facility} lists them."),
        StateError::Ambiguous { .. } => "Give more letters of its id, or its number.".to_owned(),
        StateError::Newer { .. } => String::new(),
        StateError::Record { .. } => {
            "Nothing was changed. Restore the file from a backup, or remove it to give that snapshot up.".to_owned()
        }
        StateError::Objects(_) => match code {
            "snapshot_damaged" => {
                "Nothing was changed. Other snapshots may be whole: nexus facility snapshots NAME --verify reads them."
                    .to_owned()
            }
            "snapshot_busy" => "Try it again when that is done.".to_owned(),
            _ => "Nothing was changed.".to_owned(),
        },
        StateError::Io { .. } => "Nothing was changed.".to_owned(),
    };
    Failure::refused(code, error.to_string(), hint)
}
