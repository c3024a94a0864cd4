//! The control plane over HTTP.

use super::work::{SourceError, WorkSource};
use nexus_api::client::{ClientError, ConduitsClient};
use nexus_api::conduits::{
    ArtifactAnswer, ArtifactChunkRequest, ArtifactRequest, ConnectionAnswer, ConnectionRequest, EventsRequest,
    FinishedAnswer, FinishedRequest, HeartbeatAnswer, HeartbeatRequest, LogChunkRequest, PollAnswer, PollRequest,
    StartedAnswer, StartedRequest, TerritoryHeartbeatAnswer, TerritoryHeartbeatRequest,
};
use nexus_model::ids::DirectiveId;
use std::future::Future;
use std::sync::{PoisonError, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Status of an answer to a caller that is not known.
const UNAUTHORIZED: u16 = 401;

/// Calls a control plane. The threads of the daemon wait on it; the runtime belongs to the caller.
pub struct HttpSource {
    current: RwLock<Current>,
    runtime: Handle,
    stopped: watch::Sender<bool>,
}

/// The client of the next call.
#[derive(Clone)]
struct Current {
    client: ConduitsClient,
    /// Number of clients before it.
    number: u64,
}

impl HttpSource {
    /// Makes one that drives its calls on this runtime.
    #[must_use]
    pub fn new(client: ConduitsClient, runtime: Handle) -> Self {
        let current = RwLock::new(Current { client, number: 0 });
        Self { current, runtime, stopped: watch::channel(false).0 }
    }

    /// Uses another client from the next call on, such as one with a new certificate. The certificate before ends when the new one is
    /// used: a call that waits meanwhile is refused, and made again with the new one.
    pub fn replace(&self, client: ConduitsClient) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Current { client, number: current.number + 1 };
    }

    fn current(&self) -> Current {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn wait<T, F>(&self, call: impl Fn(ConduitsClient) -> F) -> Result<T, SourceError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.runtime.block_on(self.made(call)).map_err(|error| of_client(&error))
    }

    async fn made<T, F>(&self, call: impl Fn(ConduitsClient) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        loop {
            let Current { client, number } = self.current();
            match call(client).await {
                Err(error) if error.status() == Some(UNAUTHORIZED) && self.current().number != number => {}
                other => return other,
            }
        }
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
        let mut stopped = self.stopped.subscribe();
        let stop = async move { stopped.wait_for(|stopped| *stopped).await.is_ok() };
        let poll = self.made(|client| async move { client.poll(request).await });
        self.runtime.block_on(async {
            tokio::select! {
                answer = poll => answer.map_err(|error| of_client(&error)),
                // What was claimed meanwhile goes back at the control plane: it sees that the connection ended.
                _ = stop => Err(SourceError::NoAnswer { why: "the daemon stops".to_owned() }),
            }
        })
    }

    fn beat(&self, request: &TerritoryHeartbeatRequest) -> Result<TerritoryHeartbeatAnswer, SourceError> {
        self.wait(|client| async move { client.territory_heartbeat(request).await })
    }

    fn started(&self, id: DirectiveId, token: &str, request: &StartedRequest) -> Result<StartedAnswer, SourceError> {
        self.wait(|client| async move { client.started(id, token, request).await })
    }

    fn heartbeat(
        &self,
        id: DirectiveId,
        token: &str,
        request: &HeartbeatRequest,
    ) -> Result<HeartbeatAnswer, SourceError> {
        self.wait(|client| async move { client.heartbeat(id, token, request).await })
    }

    fn log_chunk(&self, id: DirectiveId, token: &str, request: &LogChunkRequest) -> Result<(), SourceError> {
        self.wait(|client| async move { client.log_chunk(id, token, request).await }).map(drop)
    }

    fn finished(&self, id: DirectiveId, token: &str, request: &FinishedRequest) -> Result<FinishedAnswer, SourceError> {
        self.wait(|client| async move { client.finished(id, token, request).await })
    }

    fn events(&self, id: DirectiveId, token: &str, request: &EventsRequest) -> Result<(), SourceError> {
        self.wait(|client| async move { client.events(id, token, request).await }).map(drop)
    }

    fn connection(
        &self,
        id: DirectiveId,
        token: &str,
        request: &ConnectionRequest,
    ) -> Result<ConnectionAnswer, SourceError> {
        self.wait(|client| async move { client.connection(id, token, request).await })
    }

    fn artifact(&self, id: DirectiveId, token: &str, request: &ArtifactRequest) -> Result<ArtifactAnswer, SourceError> {
        self.wait(|client| async move { client.artifact(id, token, request).await })
    }

    fn artifact_chunk(
        &self,
        id: DirectiveId,
        token: &str,
        artifact: &str,
        request: &ArtifactChunkRequest,
    ) -> Result<ArtifactAnswer, SourceError> {
        self.wait(|client| async move { client.artifact_chunk(id, token, artifact, request).await })
    }

    fn stop_polls(&self) {
        self.stopped.send_replace(true);
    }
}
