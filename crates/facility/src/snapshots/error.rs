//! The error type of snapshots of a facility.

use crate::lock::LockError;
use crate::name::FacilityName;
use crate::store::StoreError;
use nexus_snapshot::SnapshotError;
use std::io;

/// Reason for which a snapshot cannot be taken or used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The facility cannot be used.
    #[error(transparent)]
    Facility(#[from] StoreError),
    /// The store of objects, or the tree, cannot be used.
    #[error(transparent)]
    Objects(#[from] SnapshotError),
    /// The facility has no such snapshot.
    #[error("the facility {facility} has no snapshot {which:?}")]
    Unknown {
        /// Name of the facility.
        facility: FacilityName,
        /// The words of the caller, cut to a bounded length.
        which: String,
    },
    /// Several snapshots have such a name.
    #[error("several snapshots of the facility {facility} begin with {which}")]
    Ambiguous {
        /// Name of the facility.
        facility: FacilityName,
        /// The words of the caller.
        which: String,
    },
    /// A label is refused.
    #[error("the label is refused: {why}")]
    Label {
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A record cannot be used.
    #[error("the record {file} of a snapshot of the facility {facility} is damaged: {why}")]
    Record {
        /// Name of the facility.
        facility: FacilityName,
        /// Name of the file of the record.
        file: String,
        /// The fault that was found.
        why: String,
    },
    /// A newer program wrote the record.
    #[error("the snapshot {file} of the facility {facility} was made by a newer version of Nexus: update this one")]
    Newer {
        /// Name of the facility.
        facility: FacilityName,
        /// Name of the file of the record.
        file: String,
    },
    /// A call failed.
    #[error("the snapshots of the facility {facility} cannot be used: {source}")]
    Io {
        /// Name of the facility.
        facility: FacilityName,
        /// The answer of the system.
        source: io::Error,
    },
}

impl From<LockError> for StateError {
    fn from(error: LockError) -> Self {
        Self::Facility(StoreError::Lock(error))
    }
}

impl StateError {
    /// Returns the stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Facility(error) => error.code(),
            Self::Objects(error) => error.code(),
            Self::Unknown { .. } => "snapshot_unknown",
            Self::Ambiguous { .. } => "snapshot_ambiguous",
            Self::Label { .. } => "snapshot_label",
            Self::Record { .. } => "snapshot_damaged",
            Self::Newer { .. } => "snapshot_newer",
            Self::Io { .. } => "snapshot_store",
        }
    }
}
