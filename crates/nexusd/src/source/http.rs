//! The control plane over HTTP.

use super::work::{SourceError, WorkSource};
use nexus_api::client::{ClientError, ConduitsClient};
use nexus_api::conduits::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, EventsRequest, FinishedAnswer, FinishedRequest,
    HeartbeatAnswer, HeartbeatRequest, LogChunkRequest, PollAnswer, PollRequest, StartedAnswer, StartedRequest,
    TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
};
use nexus_model::ids::DirectiveId;
use std::future::Future;
use std::sync::{PoisonError, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Calls a control plane. The threads of the daemon wait on it; the runtime belongs to the caller.
pub struct HttpSource {
    client: RwLock<ConduitsClient>,
    runtime: Handle,
    stopped: watch::Sender<bool>,
}

impl HttpSource {
    /// Makes one that drives its calls on this runtime.
    #[must_use]
    pub fn new(client: ConduitsClient, runtime: Handle) -> Self {
        Self { client: RwLock::new(client), runtime, stopped: watch::channel(false).0 }
    }

    /// Uses another client from the next call on, such as one with a new certificate. Calls that wait go on with the one before.
    pub fn replace(&self, client: ConduitsClient) {
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = client;
    }

    fn client(&self) -> ConduitsClient {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait<T>(&self, call: impl Future<Output = Result<T, ClientError>>) -> Result<T, SourceError> {
        self.runtime.block_on(call).map_err(|error| of_client(&error))
    }
}

fn of_client(error: &ClientError) -> SourceError {
    match error {
        ClientError::Status { status, retry_after, .. } => {
            SourceError::Refused { status: *status, retry_after: *retry_after, why: error.to_string() }
        }
        _ => SourceError::NoAnswer { why: error.to_string() },
    }
}

impl WorkSource for HttpSource {
    fn poll(&self, request: &PollRequest) -> Result<PollAnswer, SourceError> {
        let client = self.client();
        let mut stopped = self.stopped.subscribe();
        let stop = async move { stopped.wait_for(|stopped| *stopped).await.is_ok() };
        self.runtime.block_on(async {
            tokio::select! {
                answer = client.poll(request) => answer.map_err(|error| of_client(&error)),
                // What was claimed meanwhile goes back at the control plane: it sees that the connection ended.
                _ = stop => Err(SourceError::NoAnswer { why: "the daemon stops".to_owned() }),
            }
        })
    }

    fn beat(&self, request: &TerritoryHeartbeatRequest) -> Result<TerritoryHeartbeatAnswer, SourceError> {
        self.wait(self.client().territory_heartbeat(request))
    }

    fn started(&self, id: DirectiveId, token: &str, request: &StartedRequest) -> Result<StartedAnswer, SourceError> {
        self.wait(self.client().started(id, token, request))
    }

    fn heartbeat(
        &self,
        id: DirectiveId,
        token: &str,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatAnswer, SourceError> {
        self.wait(self.client().heartbeat(id, token, request))
    }

    fn log_chunk(&self, id: DirectiveId, token: &str, request: &LogChunkRequest) -> Result<(), SourceError> {
        self.wait(self.client().log_chunk(id, token, request)).map(drop)
    }

    fn finished(&self, id: DirectiveId, token: &str, request: &FinishedRequest) -> Result<FinishedAnswer, SourceError> {
        self.wait(self.client().finished(id, token, request))
    }

    fn events(&self, id: DirectiveId, token: &str, request: &EventsRequest) -> Result<(), SourceError> {
        self.wait(self.client().events(id, token, request)).map(drop)
    }

    fn artifact(&self, id: DirectiveId, token: &str, request: &ArtifactRequest) -> Result<ArtifactAnswer, SourceError> {
        self.wait(self.client().artifact(id, token, request))
    }

    fn artifact_chunk(
        &self,
        id: DirectiveId,
        token: &str,
        artifact: &str,
        request: &ArtifactChunkRequest,
    ) -> Result<ArtifactAnswer, SourceError> {
        self.wait(self.client().artifact_chunk(id, token, artifact, request))
    }

    fn stop_polls(&self) {
        self.stopped.send_replace(true);
    }
}
