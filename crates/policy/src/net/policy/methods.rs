//! The HTTP methods that a policy lets through.

use serde::{Deserialize, Serialize};

/// The methods that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Methods {
    /// All of them.
    #[default]
    Any,
    /// GET, HEAD and OPTIONS, and nothing that could be another one unseen: no TLS, no tunnel, no upgrade.
    ReadOnly,
}
