//! A record of the content that a git index of the workspace had when a run began.

use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// Records what an index of the workspace said when the run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexNote {
    /// Its path in the workspace.
    pub path: ByteText,
    /// The checksum of its meaning.
    pub sum: String,
}
