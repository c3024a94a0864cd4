//! Policy documents of a control plane: those of its operator, and the one of the account.

use crate::time::Timestamp;
use nexus_model::digest::Digest;
use serde::{Deserialize, Serialize};

/// Longest document of an account, in bytes.
pub const MAX_POLICY_BYTES: usize = 128 * 1024;

/// Answer to `GET /mothership/api/v1/policies`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyList {
    /// Hash of the documents that count together.
    pub generation: Digest,
    pub documents: Vec<PolicyInfo>,
    pub account: AccountPolicy,
}

/// A document that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInfo {
    pub level: String,
    pub id: String,
    /// Its file on the server, or `account@N` for generation N of the document of the account.
    pub source: String,
    pub hash: Digest,
    /// Number of the cases that it brings along; all of them hold.
    pub tests: u32,
}

/// The document of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountPolicy {
    /// Number of its changes; 0 when there never was one.
    pub generation: u64,
    /// Its text; absent where the account has none.
    pub document: Option<String>,
    pub hash: Option<Digest>,
    pub applied_at: Option<Timestamp>,
    /// Id of the API key.
    pub applied_by: Option<String>,
}

/// Body of `PUT /mothership/api/v1/policies/account`: either a document or `remove`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct PutPolicy {
    /// The document as YAML or JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
    /// Takes the document of the account out of force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove: Option<bool>,
    /// Number of the generation that the caller has seen. With another one in force nothing is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_generation: Option<u64>,
}

/// Answer to `GET /mothership/api/v1/policies/effective`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectivePolicy {
    pub generation: Digest,
    pub documents: Vec<PolicyInfo>,
    /// Each value that the documents allow together, with the document and line that decided it.
    pub values: Vec<PolicyValue>,
    /// Answer to the question of the request, if it asks one.
    pub answer: Option<PolicyAnswer>,
}

/// A value with its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyValue {
    pub what: String,
    pub from: String,
}

/// Answer to a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAnswer {
    pub question: String,
    pub allowed: bool,
    /// Every document that forbids it, with its reason.
    pub forbidden_by: Vec<String>,
}
