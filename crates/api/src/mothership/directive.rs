//! Directives as users create and see them.

use crate::labels::Labels;
use crate::lenient;
use crate::time::Timestamp;
use nexus_model::capability::{FsCapability, NetCapability};
use nexus_model::directive::{OnLeaseLoss, State};
use nexus_model::ids::{DirectiveId, FacilityId, TerritoryId};
use nexus_model::spec::{ArtifactRules, DirectiveChanges, DirectiveLimits, SandboxProfile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Capabilities that a user asks for. A misspelt name is refused: a rule must not be absent without a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct RequestedCapabilities {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub net: Option<NetCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs: Option<FsCapability>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "crate::lenient::or_default")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "crate::lenient::or_default")]
    pub secrets: Vec<String>,
}

/// Demands that a territory has to meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Requirements {
    /// Labels that the territory must have.
    #[serde(default, deserialize_with = "crate::lenient::or_default")]
    pub labels: Labels,
    /// Guarantees that its driver must give.
    #[serde(default, deserialize_with = "crate::lenient::or_default")]
    pub guarantees: Vec<String>,
}

/// Body of `POST /mothership/api/v1/facilities/{id}/directives`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CreateDirective {
    /// Command string, run by `shell -c`.
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_profile: Option<SandboxProfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_capabilities: Option<RequestedCapabilities>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_allowlist: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_refs: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<DirectiveLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<ArtifactRules>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<Requirements>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<DirectiveChanges>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lease_loss: Option<OnLeaseLoss>,
    /// Name of the group whose directives wait in a queue of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Each step puts the directive one minute ahead of (or behind) its place in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout_seconds: Option<u64>,
}

/// Answer to the creation of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedDirective {
    pub directive_id: DirectiveId,
    pub state: State,
    pub created_at: Timestamp,
}

/// Answer to `GET /mothership/api/v1/directives/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Directive {
    pub directive_id: DirectiveId,
    pub facility_id: FacilityId,
    pub state: State,
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    pub command: String,
    pub sandbox_profile: SandboxProfile,
    pub effective_capabilities: Option<serde_json::Value>,
    pub approval_reasons: Vec<String>,
    /// Sentence that says why the directive waits, while it is queued.
    pub queued_because: Option<String>,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub diff_truncated: bool,
    pub snapshot_before: Option<serde_json::Value>,
    pub snapshot_after: Option<serde_json::Value>,
    pub artifacts_manifest: Option<serde_json::Value>,
    pub timing: Option<serde_json::Value>,
    pub territory_id: Option<TerritoryId>,
    pub attempt: u32,
    pub cancel_requested: bool,
    /// A diff was reported.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub has_diff: bool,
    /// A receipt was reported.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub has_receipt: bool,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
}

/// One page of directives, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectiveList {
    pub directives: Vec<Directive>,
    pub next_cursor: Option<String>,
}

/// Body of `POST /mothership/api/v1/directives/{id}/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CancelRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// Answer to an action that may change the state of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectiveStateAnswer {
    pub directive_id: DirectiveId,
    pub state: State,
    pub cancel_requested: bool,
}
