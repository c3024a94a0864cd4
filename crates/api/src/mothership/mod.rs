//! Mothership v1: the calls of users and programs.

#![allow(missing_docs, reason = "the fields are the frozen names of the contract; docs/protocol describes each")]

mod approval;
mod artifact;
mod directive;
mod event;
mod facility;
mod identity;
mod log;
mod policy;
mod territory;

pub use approval::{Approval, ApprovalList, ApproveRequest, ConnectionAsks, RejectRequest};
pub use artifact::{Artifact, ArtifactList};
pub use directive::{
    CancelRequest, CreateDirective, CreatedDirective, Directive, DirectiveList, DirectiveStateAnswer,
    RequestedCapabilities, Requirements,
};
pub use event::{DirectiveEvent, EventId, EventKind};
pub use facility::{CreateFacility, CreatedFacility, Facility, FacilityKind, FacilityList};
pub use identity::{
    ApiKey, ApiKeyList, CreateApiKey, CreateEnrollmentToken, CreatedApiKey, EnrollmentToken, Role, UnknownRole,
};
pub use log::{LogChunk, LogChunks};
pub use policy::{
    AccountPolicy, EffectivePolicy, MAX_POLICY_BYTES, PolicyAnswer, PolicyInfo, PolicyList, PolicyValue, PutPolicy,
};
pub use territory::{Territory, TerritoryList, TerritoryStatus};

/// Header that makes the creation of a directive repeatable.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// Largest piece of a kept file in one answer, in bytes.
pub const MAX_ARTIFACT_PIECE: u64 = 2 * 1024 * 1024;
/// Largest number of log chunks in one answer.
pub const MAX_CHUNKS: u32 = 500;
/// Time limit of a directive that names none, in seconds.
pub const DEFAULT_TIMEOUT_SECONDS: u64 = 300;
