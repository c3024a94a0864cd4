//! Claims of directives.

use crate::lenient;
use nexus_model::digest::Digest;
use nexus_model::directive::Fence;
use nexus_model::ids::{ApprovalId, DirectiveId, TerritoryId};
use nexus_model::spec::DirectiveSpec;
use nexus_model::subject::DirectiveSubject;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reads a field for which `null` means the default.
fn read_profiles<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or_else(default_profiles))
}

fn default_profiles() -> Vec<String> {
    vec!["untrusted".to_owned()]
}

/// Reads a field for which `null` means the default.
fn read_claims<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or_else(default_claims))
}

fn default_claims() -> u32 {
    1
}

/// Reads a field for which `null` means the default.
fn read_approvers<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<u32, D::Error> {
    Ok(Option::deserialize(reader)?.unwrap_or_else(one_approver))
}

fn one_approver() -> u32 {
    1
}

/// Body of `POST /conduits/v1/polls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollRequest {
    #[serde(default = "default_profiles", deserialize_with = "read_profiles")]
    pub supported_sandbox_profiles: Vec<String>,
    #[serde(default = "default_claims", deserialize_with = "read_claims")]
    pub max_directives_to_claim: u32,
    /// Time to wait for a directive; absent means that the answer comes at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u32>,
    /// Guarantees that the territory gives.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "lenient::field")]
    pub guarantees: Option<Vec<String>>,
    /// Name of this poll: a repetition gets the claims that the lost answer carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_id: Option<String>,
}

impl Default for PollRequest {
    fn default() -> Self {
        Self {
            supported_sandbox_profiles: default_profiles(),
            max_directives_to_claim: default_claims(),
            wait_seconds: None,
            guarantees: None,
            poll_id: None,
        }
    }
}

/// Answer to a poll.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollAnswer {
    pub directives: Vec<ClaimedDirective>,
    pub lease_ttl_seconds: u32,
    pub retry_after_seconds: u32,
}

/// One directive that the territory now holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimedDirective {
    pub directive_id: DirectiveId,
    pub directive_token: String,
    pub spec: DirectiveSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ttl_seconds: Option<u32>,
    /// The approval that lets it start, where it needed one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ClaimApproval>,
}

/// An approval that was used for a claim, with what its hash holds beside the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimApproval {
    pub approval_id: ApprovalId,
    /// Hash of what was approved.
    pub subject: Digest,
    /// Labels that the territory must have.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub labels: BTreeMap<String, String>,
    /// The only territory that may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub territory_id: Option<TerritoryId>,
    /// Number of users who approved it; absent from a server that knows one alone.
    #[serde(default = "one_approver", deserialize_with = "read_approvers")]
    pub approvers: u32,
}

impl ClaimApproval {
    /// Reports whether exactly this specification was approved.
    #[must_use]
    pub fn is_for(&self, spec: &DirectiveSpec) -> bool {
        let (labels, territory_id) = (self.labels.clone(), self.territory_id);
        DirectiveSubject { spec: spec.clone(), labels, territory_id }.digest() == Some(self.subject)
    }
}
