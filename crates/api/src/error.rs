//! The body of every answer that is not a success.

use serde::{Deserialize, Serialize};

/// Error as a program reads it: `{error, detail?, code, hint?, request_id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ErrorBody {
    /// Sentence for people.
    #[serde(default)]
    pub error: String,
    /// More about the cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Stable code for programs, in lower case with underscores.
    #[serde(default)]
    pub code: String,
    /// Action that the caller can take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Number of the request, which the server's log names too.
    #[serde(default)]
    pub request_id: String,
}
