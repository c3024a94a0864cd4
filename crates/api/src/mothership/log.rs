//! Output of a directive as users read it.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Answer to `GET /mothership/api/v1/directives/{id}/log_chunks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunks {
    pub chunks: Vec<LogChunk>,
    /// Value of `after_seq` for the next call.
    pub next_after_seq: i64,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
}

/// One piece of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    pub seq: i64,
    pub bytes_base64: String,
    pub bytesize: u64,
    pub truncated: bool,
    pub created_at: Timestamp,
}
