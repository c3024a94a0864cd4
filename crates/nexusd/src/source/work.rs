//! The calls of a daemon, and their errors.

use nexus_api::conduits::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, ConnectionAnswer, ConnectionRequest, EventsRequest,
    FinishedAnswer, FinishedRequest, HeartbeatAnswer, HeartbeatRequest, LogChunkRequest, PollAnswer, PollRequest,
    StartedAnswer, StartedRequest, TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
};
use nexus_api::retry::{Outcome, SLOW_BODY};
use nexus_model::ids::DirectiveId;
use std::time::Duration;

/// The first status by which a server, or what stands before it, says that it failed.
const SERVER_ERRORS: u16 = 500;

/// A control plane, as the daemon calls it. Each call waits for its answer; threads may share it.
pub trait WorkSource: Send + Sync {
    /// Claims directives, and waits for some.
    fn poll(&self, request: &PollRequest) -> Result<PollAnswer, SourceError>;
    /// Reports that the territory lives, and its directives with it.
    fn beat(&self, request: &TerritoryHeartbeatRequest) -> Result<TerritoryHeartbeatAnswer, SourceError>;
    /// Reports the start of a directive.
    fn started(&self, id: DirectiveId, token: &str, request: &StartedRequest) -> Result<StartedAnswer, SourceError>;
    /// Renews the lease of one directive.
    fn heartbeat(
        &self,
        id: DirectiveId,
        token: &str,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatAnswer, SourceError>;
    /// Reports output of a directive.
    fn log_chunk(&self, id: DirectiveId, token: &str, request: &LogChunkRequest) -> Result<(), SourceError>;
    /// Reports the end of a directive.
    fn finished(&self, id: DirectiveId, token: &str, request: &FinishedRequest) -> Result<FinishedAnswer, SourceError>;
    /// Reports typed events of a directive.
    fn events(&self, id: DirectiveId, token: &str, request: &EventsRequest) -> Result<(), SourceError>;
    /// Asks a person about a connection, or looks for the answer.
    fn connection(
        &self,
        id: DirectiveId,
        token: &str,
        request: &ConnectionRequest,
    ) -> Result<ConnectionAnswer, SourceError>;
    /// Announces a kept file.
    fn artifact(&self, id: DirectiveId, token: &str, request: &ArtifactRequest) -> Result<ArtifactAnswer, SourceError>;
    /// Sends the next bytes of a kept file.
    fn artifact_chunk(
        &self,
        id: DirectiveId,
        token: &str,
        artifact: &str,
        request: &ArtifactChunkRequest,
    ) -> Result<ArtifactAnswer, SourceError>;
    /// Ends a poll that waits: the daemon takes no more work.
    fn stop_polls(&self);
}

/// A call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// No answer came. The request may have taken effect.
    #[error("{why}")]
    NoAnswer {
        /// Cause, for a person to read.
        why: String,
    },
    /// The control plane refused the call.
    #[error("{why}")]
    Refused {
        /// Status of the answer.
        status: u16,
        /// Time after which the call may be repeated.
        retry_after: Option<Duration>,
        /// Cause, for a person to read.
        why: String,
    },
}

impl SourceError {
    /// Reports whether the body did not arrive in the time that the control plane gives it.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        matches!(self, Self::Refused { status: SLOW_BODY, .. })
    }

    /// Reports whether the call may have taken effect, although its answer does not say so.
    #[must_use]
    pub fn may_have_arrived(&self) -> bool {
        match self {
            Self::NoAnswer { .. } => true,
            Self::Refused { status, .. } => *status >= SERVER_ERRORS,
        }
    }

    /// Returns the end of the call for the rules of repetition.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NoAnswer { .. } => Outcome::NoAnswer,
            Self::Refused { status, retry_after, .. } => Outcome::Status { status: *status, retry_after: *retry_after },
        }
    }
}
