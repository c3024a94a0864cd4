//! Kept files of a directive as users read them.

use serde::{Deserialize, Serialize};

/// Answer to `GET /mothership/api/v1/directives/{id}/artifacts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactList {
    pub artifacts: Vec<Artifact>,
    /// The manifest as the territory reported it, with links and files that were left out.
    pub manifest: Option<serde_json::Value>,
}

/// One kept file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub artifact_id: String,
    /// Path relative to the workspace.
    pub name: String,
    pub size: u64,
    /// BLAKE3 hash of the file, in hexadecimal.
    pub blake3: String,
    pub media_type: Option<String>,
    /// The file can be read: it is stored whole, and its hash is the announced one.
    pub complete: bool,
}
