//! Approvals as users see and answer them.

use crate::time::Timestamp;
use nexus_model::approval::{ApprovalKind, ApprovalState};
use nexus_model::digest::Digest;
use nexus_model::ids::{ApprovalId, DirectiveId};
use nexus_model::spec::DirectiveSpec;
use nexus_model::subject::ConnectionSubject;
use serde::{Deserialize, Serialize};

/// An approval. Users are named by the ids of their API keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub approval_id: ApprovalId,
    pub kind: ApprovalKind,
    pub state: ApprovalState,
    pub directive_id: DirectiveId,
    /// Key that asked. It may not answer.
    pub requested_by: String,
    pub approved_by: Vec<String>,
    pub denied_by: Option<String>,
    /// Reasons for which it is needed, for people.
    pub reasons: Vec<String>,
    /// Comment of the last answer.
    pub comment: Option<String>,
    pub max_uses: u32,
    pub uses_left: u32,
    pub quorum: u32,
    /// Hash of `asks`, or of its part `connection` where the kind is egress: an answer names it.
    pub subject: Digest,
    /// Exactly what is asked for: the specification, labels and territory; of a connection a [`ConnectionAsks`].
    pub asks: serde_json::Value,
    pub asked_at: Timestamp,
    pub expires_at: Timestamp,
}

/// Form of `asks` where the kind is egress: a connection of a directive that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionAsks {
    pub connection: ConnectionSubject,
    /// The specification whose hash stands in the connection.
    pub spec: DirectiveSpec,
}

impl ConnectionAsks {
    /// Reads what is asked for. `None` where a hash does not hold: a program that shows less than was hashed would let its user
    /// approve what was not shown.
    #[must_use]
    pub fn of(approval: &Approval) -> Option<Self> {
        let asks: Self = serde_json::from_value(approval.asks.clone()).ok()?;
        let holds = asks.connection.digest() == Some(approval.subject)
            && Digest::of_json(&asks.spec) == Some(asks.connection.spec)
            && asks.connection.directive_id == asks.spec.directive_id;
        holds.then_some(asks)
    }
}

/// Answer to `GET /mothership/api/v1/approvals`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalList {
    pub approvals: Vec<Approval>,
    pub next_cursor: Option<String>,
}

/// Body of `POST /mothership/api/v1/directives/{id}/approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ApproveRequest {
    /// Approval that the answer is to; absent for that of the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// `once`, which is what an absent one means, or `directive` for each connection to the destination until the directive is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Number of uses, if fewer than were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// Seconds until it ends, if sooner than was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Hash of what the answer is about. With another one the answer is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Digest>,
}

/// Body of `POST /mothership/api/v1/directives/{id}/reject`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct RejectRequest {
    /// Approval that the answer is to; absent for that of the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}
