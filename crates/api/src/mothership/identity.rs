//! Roles, API keys and enrolment tokens.

use crate::conduits::TerritoryKind;
use crate::labels::Labels;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Role of an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads and changes nothing.
    Viewer,
    /// Creates, cancels and reads directives, nothing else.
    Agent,
    /// Manages territories and facilities, approves, changes policies.
    Operator,
    /// Manages keys too.
    Owner,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: &'static [Role] = &[Self::Viewer, Self::Agent, Self::Operator, Self::Owner];

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Agent => "agent",
            Self::Operator => "operator",
            Self::Owner => "owner",
        }
    }
}

/// The name of a role was not known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name:?} is not a role; roles are viewer, agent, operator and owner")]
pub struct UnknownRole {
    pub name: String,
}

impl FromStr for Role {
    type Err = UnknownRole;
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|role| role.name() == name).ok_or_else(|| UnknownRole { name: name.to_owned() })
    }
}

/// Body of `POST /mothership/api/v1/enrollment_tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CreateEnrollmentToken {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TerritoryKind>,
}

/// Enrolment token; it is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnrollmentToken {
    pub token: String,
    pub expires_at: Timestamp,
}

/// Body of `POST /mothership/api/v1/api_keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateApiKey {
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// New API key; it is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedApiKey {
    pub api_key_id: String,
    pub api_key: String,
    pub role: Role,
    pub created_at: Timestamp,
}

/// API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    pub api_key_id: String,
    pub role: Role,
    pub name: Option<String>,
    pub created_at: Timestamp,
}

/// Answer to `GET /mothership/api/v1/api_keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyList {
    pub api_keys: Vec<ApiKey>,
}
