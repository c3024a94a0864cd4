//! Reports about one directive.

use crate::lenient;
use crate::time::Timestamp;
use nexus_model::directive::{Fence, FinishStatus, State};
use nexus_model::ids::DirectiveId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Phase of `progress` in which the daemon commits the changes.
pub const SETTLING: &str = "settling";
/// Phase of `progress` in which only the report of the end is left.
pub const REPORTING: &str = "reporting";

/// Progress of a directive. Fields that this program does not know are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Progress {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub phase: Option<String>,
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

impl Progress {
    /// Returns whether the daemon commits the changes.
    #[must_use]
    pub fn is_settling(&self) -> bool {
        self.phase.as_deref() == Some(SETTLING)
    }

    /// Returns whether the command has ended, and its changes are committed or its end is reported.
    #[must_use]
    pub fn is_after_the_command(&self) -> bool {
        matches!(self.phase.as_deref(), Some(SETTLING | REPORTING))
    }
}

/// Body of `POST /conduits/v1/directives/{id}/started`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct StartedRequest {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub effective_capabilities_summary: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub sandbox_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub nexus_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub runtime_ref: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub started_at: Option<Timestamp>,
}

/// Answer to the report of a start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartedAnswer {
    pub ok: bool,
    pub directive_id: DirectiveId,
    pub state: State,
    pub duplicate: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

/// Body of `POST /conduits/v1/directives/{id}/heartbeat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct HeartbeatRequest {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub progress: Option<Progress>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub last_output_seq: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub now: Option<Timestamp>,
}

/// Answer to the heartbeat of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    pub cancel_requested: bool,
    pub lease_renewed: bool,
    pub directive_token: String,
}

/// Stream of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Body of `POST /conduits/v1/directives/{id}/log_chunks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunkRequest {
    pub stream: Stream,
    /// Number of the chunk in its stream, from 0.
    pub seq: i64,
    /// Bytes in standard base64.
    pub bytes: String,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub truncated: bool,
}

/// Answer to a log chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunkAnswer {
    pub ok: bool,
    pub directive_id: DirectiveId,
    pub stream: Stream,
    pub seq: i64,
    pub stored: bool,
    pub duplicate: bool,
    pub accepted_bytes: u64,
    pub truncated: bool,
}

/// Body of `POST /conduits/v1/directives/{id}/events`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventsRequest {
    pub seq: i64,
    pub events: Vec<serde_json::Value>,
}

/// Answer to a batch of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsAnswer {
    pub ok: bool,
    pub directive_id: DirectiveId,
    pub seq: i64,
    pub duplicate: bool,
}

/// Body of `POST /conduits/v1/directives/{id}/artifacts`: a kept file whose bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactRequest {
    /// Path relative to the workspace.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// BLAKE3 hash of the file, in hexadecimal.
    pub blake3: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub media_type: Option<String>,
}

/// Body of `POST /conduits/v1/directives/{id}/artifacts/{artifact_id}`: the next bytes of a kept file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactChunkRequest {
    /// Place of the first byte in the file.
    pub offset: u64,
    /// Bytes in standard base64.
    pub bytes: String,
}

/// Answer to both: how much of the file is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactAnswer {
    pub ok: bool,
    pub directive_id: DirectiveId,
    /// Name of the file in calls.
    pub artifact_id: String,
    /// Place of the next byte that is wanted.
    pub offset: u64,
    /// The file is stored whole, and its hash is the announced one.
    pub complete: bool,
}

/// Body of `POST /conduits/v1/directives/{id}/finished`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedRequest {
    pub status: FinishStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub stdout_truncated: bool,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub stderr_truncated: bool,
    /// Number of chunks of the whole stream, where a truncated one only waits to be sent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub stdout_chunks: Option<i64>,
    /// The same of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub stderr_chunks: Option<i64>,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub diff_truncated: bool,
    /// Diff of the workspace in standard base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub snapshot_before: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub snapshot_after: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub artifacts_manifest: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub finished_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub reason: Option<String>,
    /// Signed receipt of the run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub receipt: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub timing: Option<serde_json::Value>,
}

/// Answer to the report of an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedAnswer {
    pub ok: bool,
    pub directive_id: DirectiveId,
    pub duplicate: bool,
    pub final_state: State,
}
