//! Connections to a server, over TCP or TLS.

use super::error::ClientError;
use super::origin::Origin;
use super::peer;
use super::plain::PlainHttp;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// One connection, ready for a request.
pub type Connection = SendRequest<Full<Bytes>>;

/// Opens a connection, and knows to whom it leads before a byte is sent. The caller bounds the time.
pub async fn connect(
    origin: &Origin,
    tls: Option<&Arc<rustls::ClientConfig>>,
    plain: PlainHttp,
) -> Result<Connection, ClientError> {
    let fault = |why: String| ClientError::Connect { server: origin.display(), why };
    let tcp =
        TcpStream::connect((origin.host.as_str(), origin.port)).await.map_err(|error| fault(error.to_string()))?;
    tcp.set_nodelay(true).map_err(|error| fault(error.to_string()))?;
    if !origin.tls {
        let stranger = |why| ClientError::Stranger { server: origin.display(), why };
        peer::check(&tcp, plain).await.map_err(stranger)?;
        return speak(origin, tcp).await;
    }
    let config = tls.ok_or_else(|| fault("the client has no certificates to check the server against".to_owned()))?;
    let name = ServerName::try_from(origin.host.clone()).map_err(|error| fault(error.to_string()))?;
    let stream =
        TlsConnector::from(Arc::clone(config)).connect(name, tcp).await.map_err(|error| fault(error.to_string()))?;
    speak(origin, stream).await
}

async fn speak<S>(origin: &Origin, stream: S) -> Result<Connection, ClientError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ClientError::Connect { server: origin.display(), why: error.to_string() })?;
    // The task ends with the connection. Its error reaches the request that it concerns.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
