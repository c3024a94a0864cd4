//! Requests to one server over connections that are kept.

use super::connect::{Connection, connect};
use super::error::ClientError;
use super::origin::Origin;
use super::plain::PlainHttp;
use crate::error::ErrorBody;
use crate::routes::Method;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Largest answer that the client reads. The contract has answers below 4 MiB.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Number of connections that are kept while no request uses them.
const MAX_IDLE: usize = 32;

/// Settings of a client.
#[derive(Clone)]
pub struct ClientConfig {
    /// Address of the server, for example `http://127.0.0.1:8080`.
    pub server: String,
    /// TLS settings, for an address with https.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Servers with which the client speaks without TLS.
    pub plain: PlainHttp,
    /// Time for a connection.
    pub connect_timeout: Duration,
    /// Time from the request to the whole answer. A poll has its waiting time on top.
    pub timeout: Duration,
}

impl ClientConfig {
    /// Returns the usual settings for a server.
    #[must_use]
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            tls: None,
            plain: PlainHttp::Loopback { also: None },
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(30),
        }
    }
}

/// Answer of a server.
#[derive(Debug)]
pub struct Reply {
    /// Status code of the answer.
    pub status: u16,
    /// Body of the answer.
    pub body: Bytes,
}

/// Client of one server. Clones share their connections.
#[derive(Clone)]
pub struct Http {
    shared: Arc<Shared>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

struct Shared {
    origin: Origin,
    config: ClientConfig,
    idle: Mutex<Vec<Connection>>,
}

impl Http {
    /// Returns a client. No connection is made yet.
    pub fn new(config: ClientConfig) -> Result<Self, ClientError> {
        let origin = Origin::parse(&config.server)?;
        if config.plain != PlainHttp::Anywhere && !origin.is_private() {
            return Err(ClientError::InClear { server: origin.display() });
        }
        let shared = Shared { origin, config, idle: Mutex::new(Vec::new()) };
        Ok(Self { shared: Arc::new(shared), headers: Vec::new() })
    }

    /// Returns a client that shares the connections and sends this header too.
    pub fn with_header(&self, name: &'static str, value: &str) -> Result<Self, ClientError> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| self.unreadable(format!("a value for the header {name} contains a control character")))?;
        value.set_sensitive(true);
        let mut headers = self.headers.clone();
        headers.push((HeaderName::from_static(name), value));
        Ok(Self { shared: Arc::clone(&self.shared), headers })
    }

    /// Returns a client that shares the connections and sends `Authorization: Bearer` with this token.
    pub fn with_bearer(&self, token: &str) -> Result<Self, ClientError> {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// The address of the server, for messages.
    #[must_use]
    pub fn server(&self) -> String {
        self.shared.origin.display()
    }

    /// Calls a route and reads its JSON answer. `extra` is the time that the server may wait before it answers.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        extra: Duration,
    ) -> Result<T, ClientError> {
        let reply = self.fetch(method, path, body, extra).await?;
        serde_json::from_slice(&reply.body).map_err(|error| self.unreadable(error.to_string()))
    }

    /// Calls a route and reads its whole answer.
    pub async fn fetch(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        extra: Duration,
    ) -> Result<Reply, ClientError> {
        let time = self.shared.config.timeout + extra;
        let whole = async {
            let (response, connection) = self.send(method, path, body, &[]).await?;
            let reply = self.read(response).await;
            if reply.is_ok() || matches!(reply, Err(ClientError::Status { .. })) {
                self.give_back(connection);
            }
            reply
        };
        match tokio::time::timeout(time, whole).await {
            Ok(reply) => reply,
            Err(_) => Err(ClientError::Timeout { server: self.server(), seconds: time.as_secs() }),
        }
    }

    /// Sends a request with these headers to a server of another kind, and reads its whole answer, whatever its status.
    pub async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Reply, ClientError> {
        let time = self.shared.config.timeout;
        let whole = async {
            let (response, connection) = self.send(method, path, Some(body), headers).await?;
            let status = response.status().as_u16();
            let body = self.body(response).await?;
            self.give_back(connection);
            Ok(Reply { status, body })
        };
        match tokio::time::timeout(time, whole).await {
            Ok(reply) => reply,
            Err(_) => Err(ClientError::Timeout { server: self.server(), seconds: time.as_secs() }),
        }
    }

    /// Calls a route whose answer is a stream. The time for the head of the answer is bounded; the stream is not.
    pub(super) async fn stream(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
    ) -> Result<Response<Incoming>, ClientError> {
        let time = self.shared.config.timeout;
        let head = async {
            let (response, _connection) = self.send(Method::Get, path, None, headers).await?;
            if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
        };
        match tokio::time::timeout(time, head).await {
            Ok(response) => response,
            Err(_) => Err(ClientError::Timeout { server: self.server(), seconds: time.as_secs() }),
        }
    }

    /// The address was right and the answer was not.
    pub(super) fn unreadable(&self, why: String) -> ClientError {
        ClientError::Answer { server: self.server(), why }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: &[(&'static str, String)],
    ) -> Result<(Response<Incoming>, Connection), ClientError> {
        let mut request = self.request(method, path, body, headers)?;
        loop {
            let kept = self.take_idle();
            let fresh = kept.is_none();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.try_send_request(request).await {
                Ok(response) => return Ok((response, connection)),
                // A kept connection that the server closed meanwhile: no byte of the request has left.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    _ => return Err(ClientError::Broken { server: self.server(), why: error.error().to_string() }),
                },
            }
        }
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let config = &self.shared.config;
        let connection = connect(&self.shared.origin, config.tls.as_ref(), config.plain);
        match tokio::time::timeout(config.connect_timeout, connection).await {
            Ok(connection) => connection,
            Err(_) => Err(ClientError::Connect {
                server: self.server(),
                why: format!("no connection within {} seconds", config.connect_timeout.as_secs()),
            }),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        headers: &[(&'static str, String)],
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let origin = &self.shared.origin;
        let mut builder = Request::builder()
            .method(method.name())
            .uri(format!("{}{path}", origin.prefix))
            .header("host", &origin.authority)
            .header("accept", "application/json");
        for (name, value) in &self.headers {
            builder = builder.header(name, value);
        }
        for (name, value) in headers {
            builder = builder.header(*name, value);
        }
        if body.is_some() {
            builder = builder.header("content-type", "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        builder.body(body).map_err(|error| self.unreadable(format!("the request cannot be written: {error}")))
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Reply, ClientError> {
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let status = response.status().as_u16();
        let body = self.body(response).await?;
        Ok(Reply { status, body })
    }

    async fn body(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        match Limited::new(response.into_body(), MAX_ANSWER).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(ClientError::Broken { server: self.server(), why: error.to_string() }),
        }
    }

    async fn refusal(&self, response: Response<Incoming>) -> ClientError {
        let status = response.status().as_u16();
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        // A proxy in between may answer with a page of its own.
        let body = match self.body(response).await {
            Ok(body) => serde_json::from_slice::<ErrorBody>(&body).unwrap_or_default(),
            Err(error) => return error,
        };
        ClientError::Status { status, body: Box::new(body), retry_after }
    }

    fn take_idle(&self) -> Option<Connection> {
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(connection) = idle.pop() {
            if connection.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !connection.is_closed() {
            idle.push(connection);
        }
    }
}
