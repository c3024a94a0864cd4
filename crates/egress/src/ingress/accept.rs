//! Accepts connections, so that no process inside can keep a new connection waiting.
//!
//! Each connection is a task of its own; an idle one costs a few hundred bytes and no buffer. Their number is bounded,
//! and a client beyond the bound is refused at once, since a connection that waits for a place looks like a hang.

use crate::decide::denials;
use crate::decide::state::Shared;
use crate::ingress::dns::serve as dns;
use crate::ingress::host_port;
use crate::ingress::http::{reply, serve as http};
use crate::ingress::socks::serve as socks;
use crate::ingress::{transparent, tunnel};
use crate::seams::Connection;
use nexus_policy::net::Ingress;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Pause after a failure that does not concern one connection, such as no descriptors left.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval at which [`keep_beat`] wakes the runtime; shorter than any time-out of a connection.
const BEAT: Duration = Duration::from_secs(1);
/// Number of clients beyond the bound that get an answer at one time; all others get only a reset.
const REPORTED: usize = 64;

/// Protocol of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Http,
    Socks,
    TransparentV4,
    TransparentV6,
    Dns,
    /// Any bytes, passed to this port of the host's loopback.
    HostPort(u16),
}

/// Accepts connections for ever on `listener`, which is bound to `at`.
pub(crate) async fn accept(shared: Arc<Shared>, listener: TcpListener, at: SocketAddr, door: ListenerKind) {
    let reported = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match Place::take(&shared) {
                Some(place) => {
                    keep_beat(&shared);
                    shared.bound_buffers(&stream);
                    let connection = Connection { local: peer, remote: at };
                    tokio::spawn(serve(Arc::clone(&shared), stream, connection, door, place));
                }
                None => turn_away(&shared, stream, door, &reported),
            },
            Err(error) => {
                // A client may have aborted the connection; without descriptors, waiting frees some.
                drop(error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Wakes the runtime every [`BEAT`] while connections come.
///
/// A timer that is due before all others makes tokio wake its own thread by a write to an eventfd. Each connection sets
/// two or three (head, connect, idle), all of them later than the next beat, so that they cost no system call.
fn keep_beat(shared: &Arc<Shared>) {
    if shared.beating.swap(true, Ordering::AcqRel) {
        return;
    }
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        loop {
            let before = shared.latest_id();
            tokio::time::sleep(BEAT).await;
            if shared.latest_id() == before {
                break;
            }
        }
        shared.beating.store(false, Ordering::Release);
    });
}

/// Place among the bounded number of connections; released when it is dropped.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let most = shared.limits.clients;
        let taken = shared
            .clients
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < most).then_some(count + 1));
        taken.ok().map(|_| Self(Arc::clone(shared)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, connection: Connection, door: ListenerKind, place: Place) {
    match door {
        ListenerKind::Http => http::serve(shared, stream, connection).await,
        ListenerKind::Socks => socks::serve(shared, stream, connection).await,
        ListenerKind::TransparentV4 => transparent::serve(shared, stream, connection.local, false).await,
        ListenerKind::TransparentV6 => transparent::serve(shared, stream, connection.local, true).await,
        ListenerKind::Dns => dns::serve_tcp(shared, stream).await,
        ListenerKind::HostPort(port) => host_port::serve(shared, stream, connection, port).await,
    }
    drop(place);
}

/// Refuses a client because there are too many connections.
fn turn_away(shared: &Arc<Shared>, mut stream: TcpStream, door: ListenerKind, reported: &Arc<AtomicUsize>) {
    let denial = denials::too_many(format!("the sandbox has {} connections already", shared.limits.clients));
    let way = match door {
        ListenerKind::Http => Ingress::Connect,
        ListenerKind::Socks => Ingress::Socks5,
        ListenerKind::TransparentV4 | ListenerKind::TransparentV6 | ListenerKind::Dns => Ingress::Transparent,
        ListenerKind::HostPort(_) => Ingress::HostPort,
    };
    shared.unreadable(way, &denial);
    if door != ListenerKind::Http || reported.fetch_add(1, Ordering::AcqRel) >= REPORTED {
        if door == ListenerKind::Http {
            reported.fetch_sub(1, Ordering::AcqRel);
        }
        return tunnel::reset(&stream);
    }
    let reported = Arc::clone(reported);
    tokio::spawn(async move {
        reply::last(&mut stream, &reply::denied(&denial, true, false)).await;
        reported.fetch_sub(1, Ordering::AcqRel);
    });
}
