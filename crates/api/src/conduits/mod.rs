//! Conduits v1: the calls of a daemon.
//!
//! A request's fields other than `enroll_token`, `stream`, `seq`, `bytes`, `status`, `destination`, `use` and `wait_seconds` may be absent.

#![allow(missing_docs, reason = "the fields are the frozen names of the contract; docs/protocol describes each")]

mod connection;
mod directive;
mod enroll;
mod poll;
mod territory;

pub use connection::{ConnectionAnswer, ConnectionRequest, MAX_DESTINATION, MAX_PROGRAM, MAX_USE};
pub use directive::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, EventsAnswer, EventsRequest, FinishedAnswer,
    FinishedRequest, HeartbeatAnswer, HeartbeatRequest, LogChunkAnswer, LogChunkRequest, Progress, REPORTING, SETTLING,
    StartedAnswer, StartedRequest, Stream,
};
pub use enroll::{
    CaAnswer, CertificateAnswer, CertificateRequest, EnrollAnswer, EnrollMetadata, EnrollRequest, TerritoryConfig,
    TerritoryKind,
};
pub use poll::{ClaimApproval, ClaimedDirective, PollAnswer, PollRequest};
pub use territory::{
    Capacity, DirectiveBeat, DirectiveVerdict, SandboxHealth, TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
    Verdict,
};

/// Version of the protocol that this program speaks, for `protocol_version`.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest time that a poll may wait, in seconds.
pub const MAX_WAIT_SECONDS: u32 = 30;
/// Largest number of directives that one poll may claim.
pub const MAX_CLAIMS: u32 = 5;
/// Largest log chunk, in bytes.
pub const MAX_CHUNK_BYTES: usize = 256 * 1024;
/// Largest piece of a kept file in one call, in bytes.
pub const MAX_ARTIFACT_CHUNK: usize = 2 * 1024 * 1024;
/// Header with the fingerprint of the client certificate, which a trusted proxy sets.
pub const FINGERPRINT_HEADER: &str = "x-nexus-client-cert-fingerprint";
/// Header with the secret by which a server knows its proxy.
pub const PROXY_SECRET_HEADER: &str = "x-nexus-proxy-secret";
/// Header with the id of a territory, for development only.
pub const TERRITORY_HEADER: &str = "x-nexus-territory-id";
/// Header with the secret that a server shares with the daemon of its own process.
pub const TERRITORY_SECRET_HEADER: &str = "x-nexus-territory-secret";
