//! Territories as users see them.

use crate::conduits::{Capacity, TerritoryKind};
use crate::labels::Labels;
use crate::time::Timestamp;
use nexus_model::ids::TerritoryId;
use serde::{Deserialize, Serialize};

/// Status of a territory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TerritoryStatus {
    /// A heartbeat came in the last 90 seconds.
    Online,
    /// No heartbeat came in the last 90 seconds.
    Offline,
    /// The territory finishes its directives and claims no others.
    Draining,
    /// The territory was revoked and has no access any more.
    Decommissioned,
}

/// Answer to `GET /mothership/api/v1/territories/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Territory {
    pub territory_id: TerritoryId,
    pub name: Option<String>,
    pub display_name: Option<String>,
    pub kind: TerritoryKind,
    pub status: TerritoryStatus,
    pub labels: Labels,
    pub capacity: Capacity,
    pub guarantees: Vec<String>,
    /// Number of directives that the territory holds.
    pub load: u32,
    pub platform: Option<serde_json::Value>,
    pub nexus_version: Option<String>,
    pub protocol_version: Option<serde_json::Value>,
    pub created_at: Timestamp,
    pub last_seen_at: Option<Timestamp>,
}

/// Answer to `GET /mothership/api/v1/territories`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerritoryList {
    pub territories: Vec<Territory>,
}
