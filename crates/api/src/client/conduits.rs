//! The calls of a daemon.

use super::error::ClientError;
use super::http::Http;
use crate::conduits::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, CaAnswer, CertificateAnswer, CertificateRequest,
    ConnectionAnswer, ConnectionRequest, EnrollAnswer, EnrollRequest, EventsAnswer, EventsRequest, FINGERPRINT_HEADER,
    FinishedAnswer, FinishedRequest, HeartbeatAnswer, HeartbeatRequest, LogChunkAnswer, LogChunkRequest, PollAnswer,
    PollRequest, StartedAnswer, StartedRequest, TERRITORY_HEADER, TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
};
use crate::routes::{Method, fill};
use nexus_model::ids::{DirectiveId, TerritoryId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Proof of identity that a daemon sends beside its TLS certificate.
#[derive(Debug, Clone)]
pub enum TerritoryIdentity {
    /// The TLS certificate is the only proof.
    Certificate,
    /// Fingerprint of the certificate, for a server behind a proxy that the caller plays in tests.
    Fingerprint(String),
    /// Id of the territory, for development on loopback.
    Header(TerritoryId),
}

/// Client of Conduits v1.
#[derive(Clone)]
pub struct ConduitsClient {
    http: Http,
}

const NO_WAIT: Duration = Duration::ZERO;

impl ConduitsClient {
    /// Returns a client with this identity.
    pub fn new(http: &Http, identity: &TerritoryIdentity) -> Result<Self, ClientError> {
        let http = match identity {
            TerritoryIdentity::Certificate => http.clone(),
            TerritoryIdentity::Fingerprint(fingerprint) => http.with_header(FINGERPRINT_HEADER, fingerprint)?,
            TerritoryIdentity::Header(id) => http.with_header(TERRITORY_HEADER, &id.to_string())?,
        };
        Ok(Self { http })
    }

    /// Enrols this machine. The client's identity does not matter here.
    pub async fn enroll(&self, request: &EnrollRequest) -> Result<EnrollAnswer, ClientError> {
        self.post("/conduits/v1/territories/enroll", request, NO_WAIT).await
    }

    /// Reads the certificates of the authority.
    pub async fn ca(&self) -> Result<CaAnswer, ClientError> {
        self.http.call(Method::Get, "/conduits/v1/ca", None, NO_WAIT).await
    }

    /// Renews the certificate of the territory.
    pub async fn renew_certificate(&self, request: &CertificateRequest) -> Result<CertificateAnswer, ClientError> {
        self.post("/conduits/v1/territories/certificate", request, NO_WAIT).await
    }

    /// Reports that the territory lives, and its directives with it.
    pub async fn territory_heartbeat(
        &self,
        request: &TerritoryHeartbeatRequest,
    ) -> Result<TerritoryHeartbeatAnswer, ClientError> {
        self.post("/conduits/v1/territories/heartbeat", request, NO_WAIT).await
    }

    /// Claims directives. The server may wait as long as the request says.
    pub async fn poll(&self, request: &PollRequest) -> Result<PollAnswer, ClientError> {
        let wait = Duration::from_secs(u64::from(request.wait_seconds.unwrap_or(0)));
        self.post("/conduits/v1/polls", request, wait).await
    }

    /// Reports the start of a directive.
    pub async fn started(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &StartedRequest,
    ) -> Result<StartedAnswer, ClientError> {
        self.report(directive, "started", token, request).await
    }

    /// Renews the lease of a directive.
    pub async fn heartbeat(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatAnswer, ClientError> {
        self.report(directive, "heartbeat", token, request).await
    }

    /// Reports output of a directive.
    pub async fn log_chunk(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &LogChunkRequest,
    ) -> Result<LogChunkAnswer, ClientError> {
        self.report(directive, "log_chunks", token, request).await
    }

    /// Reports events of a directive.
    pub async fn events(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &EventsRequest,
    ) -> Result<EventsAnswer, ClientError> {
        self.report(directive, "events", token, request).await
    }

    /// Asks a person about a connection, or looks for the answer.
    pub async fn connection(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &ConnectionRequest,
    ) -> Result<ConnectionAnswer, ClientError> {
        self.report(directive, "connections", token, request).await
    }

    /// Announces a kept file. The answer says how much of it is stored already.
    pub async fn artifact(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &ArtifactRequest,
    ) -> Result<ArtifactAnswer, ClientError> {
        self.report(directive, "artifacts", token, request).await
    }

    /// Sends the next bytes of a kept file.
    pub async fn artifact_chunk(
        &self,
        directive: DirectiveId,
        token: &str,
        artifact: &str,
        request: &ArtifactChunkRequest,
    ) -> Result<ArtifactAnswer, ClientError> {
        let path =
            fill("/conduits/v1/directives/{directive_id}/artifacts/{artifact_id}", &[&directive.to_string(), artifact]);
        Self { http: self.http.with_bearer(token)? }.post(&path, request, NO_WAIT).await
    }

    /// Reports the end of a directive.
    pub async fn finished(
        &self,
        directive: DirectiveId,
        token: &str,
        request: &FinishedRequest,
    ) -> Result<FinishedAnswer, ClientError> {
        self.report(directive, "finished", token, request).await
    }

    async fn report<T: DeserializeOwned>(
        &self,
        directive: DirectiveId,
        call: &str,
        token: &str,
        request: &impl Serialize,
    ) -> Result<T, ClientError> {
        let path = fill(&format!("/conduits/v1/directives/{{directive_id}}/{call}"), &[&directive.to_string()]);
        Self { http: self.http.with_bearer(token)? }.post(&path, request, NO_WAIT).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(request).map_err(|error| self.http.unreadable(error.to_string()))?;
        self.http.call(Method::Post, path, Some(body), wait).await
    }
}
