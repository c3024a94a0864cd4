//! Names the workspace of a commit.

use crate::beneath::DirectoryIdentity;
use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// The workspace of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Its path when the run started.
    pub path: ByteText,
    /// Identity of the directory at that path.
    pub id: DirectoryIdentity,
}
