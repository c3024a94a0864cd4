//! An entry that stays in the layer when a commit removes the rest. Plain data.

use nexus_model::ByteText;
use serde::{Deserialize, Serialize};

/// An entry that stays in the layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptEntry {
    /// Its path in the layer.
    pub path: ByteText,
    /// True if it stays with everything below it, untouched.
    pub subtree: bool,
    /// True if the layer has no entry at the path, so that a whiteout has to be made.
    pub whiteout: bool,
    /// The permission bits of a directory, which working in it may have opened up.
    pub mode: Option<u32>,
}

impl From<ByteText> for KeptEntry {
    fn from(path: ByteText) -> Self {
        Self { path, subtree: false, whiteout: false, mode: None }
    }
}
