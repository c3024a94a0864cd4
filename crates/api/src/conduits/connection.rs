//! Connections that wait for a person.

use crate::lenient;
use nexus_model::approval::ApprovalState;
use nexus_model::digest::Digest;
use nexus_model::ids::{ApprovalId, DirectiveId};
use nexus_model::subject::ConnectionSubject;
use serde::{Deserialize, Serialize};

/// Longest destination, in bytes.
pub const MAX_DESTINATION: usize = 300;
/// Longest path of a program, in bytes.
pub const MAX_PROGRAM: usize = 4096;
/// Longest name of a use, in bytes.
pub const MAX_USE: usize = 64;

/// Body of `POST /conduits/v1/directives/{id}/connections`: a connection that no rule allows. The daemon repeats it until the state
/// is another than pending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRequest {
    /// Destination, as `host:port`.
    pub destination: String,
    /// The only program that may connect, where the network policy tells programs apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Name of the connection in the claim. The same name takes the same use again.
    #[serde(rename = "use")]
    pub use_name: String,
    /// Seconds for which the connection waits from now on.
    pub wait_seconds: u32,
    /// No connection waits for this destination any more: the request is withdrawn, and nothing is used.
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub gone: bool,
}

/// Answer to it. The connection may be made only where `allowed` is true, and once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionAnswer {
    pub ok: bool,
    pub directive_id: DirectiveId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// Hash that the approval names, of `connection`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Digest>,
    /// The connection that the approval is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionSubject>,
    /// Every state but pending and granted is a no.
    pub state: ApprovalState,
    /// One use was taken for the connection of this name.
    pub allowed: bool,
    /// Ids of the keys that approved it.
    pub approved_by: Vec<String>,
}
