//! The heartbeat of a territory.

use super::directive::Progress;
use crate::labels::Labels;
use crate::lenient;
use nexus_model::directive::Fence;
use nexus_model::ids::{DirectiveId, TerritoryId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Room and health of a territory. Fields that this program does not know are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Capacity {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub max_concurrent: Option<u32>,
    /// Health of each driver by its name.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub sandbox_health: Option<BTreeMap<String, SandboxHealth>>,
    /// Driver that runs the profile `untrusted`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub untrusted_driver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub supported_profiles: Option<Vec<String>>,
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// Health of one driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct SandboxHealth {
    pub healthy: bool,
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// Body of `POST /conduits/v1/territories/heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct TerritoryHeartbeatRequest {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub nexus_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub protocol_version: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub labels: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub capacity: Option<Capacity>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub running_directives_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub telemetry: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub capabilities: Option<serde_json::Value>,
    /// Heartbeats of directives; absent says nothing about any directive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directives: Option<Vec<DirectiveBeat>>,
}

/// Heartbeat of one directive inside the heartbeat of its territory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectiveBeat {
    pub directive_id: DirectiveId,
    pub fence: Fence,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub last_output_seq: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub progress: Option<Progress>,
}

/// Answer to the heartbeat of a territory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TerritoryHeartbeatAnswer {
    pub ok: bool,
    pub territory_id: TerritoryId,
    pub next_heartbeat_interval_seconds: u32,
    pub upgrade_available: bool,
    pub latest_version: String,
    pub min_compatible_version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directives: Option<Vec<DirectiveVerdict>>,
}

/// Decision of the server about one directive of a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectiveVerdict {
    pub directive_id: DirectiveId,
    pub verdict: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directive_token: Option<String>,
}

/// Action that a daemon takes with a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The lease is extended.
    Extend,
    /// The daemon ends the command and reports the end.
    Cancel,
    /// The daemon kills the work at once: the directive kept running past its deadline.
    Abort,
    /// The directive belongs to this daemon no more; its work is killed.
    Lost,
}
