//! Connections: TCP, TLS with a client certificate that is asked for and not required, HTTP.

use crate::app::{Shared, stopped};
use crate::http::Peer;
use crate::identity::certificate_key;
use crate::slots::{Slot, Slots};
use crate::stall::StallGuard;
use crate::tls::{LiveTls, TlsIdentity};
use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Time for the TLS handshake.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Time for the first head of a connection: a client has connected because it has a request.
const FIRST_HEAD_TIME: Duration = Duration::from_secs(10);
/// Time for the head of a later request. Connections without a request are kept longer than daemons pause.
const HEAD_TIME: Duration = Duration::from_secs(150);
/// Bytes of a connection that wait for its client, and largest head of a request.
const MAX_BUFFER: usize = 64 * 1024;
/// Largest number of connections of a listener.
const MAX_CONNECTIONS: usize = 10_000;

/// An address that the server listens on.
pub struct Listener {
    /// Socket that takes connections.
    pub tcp: TcpListener,
    /// Certificate for TLS; absent means plain HTTP.
    pub tls: Option<TlsIdentity>,
}

/// Accepts connections until the server stops, and then waits for those that are open.
pub async fn accept(tcp: TcpListener, tls: Option<Arc<LiveTls>>, router: Router, app: Shared) {
    let mut stopping = app.stopping.clone();
    let slots = Arc::new(Slots::default());
    let mut open = JoinSet::new();
    loop {
        let connection = tokio::select! {
            connection = tcp.accept() => connection,
            Some(_) = open.join_next() => continue,
            () = stopped(&mut stopping) => break,
        };
        let Ok((stream, address)) = connection else {
            // Descriptors are used up: those of connections that end become free.
            slots.evict();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let slot = tokio::select! {
            slot = slots.enter(room()) => Arc::new(slot),
            () = stopped(&mut stopping) => break,
        };
        let (tls, router, app) = (tls.clone(), router.clone(), app.clone());
        open.spawn(async move {
            // The handshake runs in the connection's own task: a slow client delays no other.
            tokio::select! {
                () = speak(stream, address, tls, router, app, Arc::clone(&slot)) => {}
                () = slot.evicted() => {}
            }
        });
    }
    drop(tcp);
    let all = async { while open.join_next().await.is_some() {} };
    if tokio::time::timeout(app.config.drain, all).await.is_err() {
        open.shutdown().await;
    }
}

/// Returns the number of connections: the files of the server and of its daemon need descriptors too.
fn room() -> usize {
    let limit = getrlimit(Resource::Nofile).current.and_then(|limit| usize::try_from(limit).ok());
    limit.map_or(MAX_CONNECTIONS, |limit| (limit / 2).clamp(1, MAX_CONNECTIONS))
}

async fn speak(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<LiveTls>>,
    router: Router,
    app: Shared,
    slot: Arc<Slot>,
) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let stream = StallGuard::new(stream, app.config.stall);
    let Some(tls) = tls else {
        return http(stream, Peer { address, key: None, tls: false }, router, app, slot).await;
    };
    let handshake = tokio::time::timeout(HANDSHAKE_TIME, TlsAcceptor::from(tls.current()).accept(stream)).await;
    let Ok(Ok(stream)) = handshake else { return };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let key = certificate.and_then(|certificate| certificate_key(certificate));
    http(stream, Peer { address, key, tls: true }, router, app, slot).await;
}

async fn http<S>(stream: S, peer: Peer, router: Router, app: Shared, slot: Arc<Slot>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let silent = {
        let slot = Arc::clone(&slot);
        async move {
            tokio::time::sleep(FIRST_HEAD_TIME).await;
            if slot.has_spoken() {
                std::future::pending::<()>().await;
            }
        }
    };
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        slot.spoke();
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&slot));
        let router = TowerToHyperService::new(router.clone());
        async move { hyper::service::Service::call(&router, request.map(Body::new)).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MAX_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut stopping = app.stopping.clone();
    tokio::select! {
        // A broken connection concerns its client alone.
        ended = connection.as_mut() => return drop(ended),
        () = silent => return,
        () = stopped(&mut stopping) => {}
    }
    connection.as_mut().graceful_shutdown();
    drop(connection.await);
}
