//! Facilities as users see them.

use crate::time::Timestamp;
use nexus_model::ids::{FacilityId, TerritoryId};
use serde::{Deserialize, Serialize};

/// Kind of a facility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FacilityKind {
    /// The facility begins without files.
    Empty,
    /// The facility begins as a clone of a repository.
    Repo,
    /// The facility is a directory of a territory.
    ImportedPath,
}

impl FacilityKind {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Repo => "repo",
            Self::ImportedPath => "imported_path",
        }
    }
}

/// Body of `POST /mothership/api/v1/facilities`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreateFacility {
    pub kind: FacilityKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_url: Option<String>,
    /// Territory that holds the files; absent means the first that claims a directive of the facility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub territory_id: Option<TerritoryId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_policy: Option<serde_json::Value>,
}

/// Answer to the creation of a facility.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CreatedFacility {
    pub facility_id: FacilityId,
    pub kind: FacilityKind,
    pub created_at: Timestamp,
}

/// Answer to `GET /mothership/api/v1/facilities/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facility {
    pub facility_id: FacilityId,
    pub kind: FacilityKind,
    pub name: Option<String>,
    pub repo_url: Option<String>,
    pub territory_id: Option<TerritoryId>,
    pub created_at: Timestamp,
}

/// Answer to `GET /mothership/api/v1/facilities`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FacilityList {
    pub facilities: Vec<Facility>,
    pub next_cursor: Option<String>,
}
