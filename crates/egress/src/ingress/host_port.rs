//! Passes connections to ports of the host's loopback, byte for byte.
//!
//! ```text
//!  127.0.0.1:PORT or [::1]:PORT inside ─▶ decided, recorded, counted ─▶ 127.0.0.1:PORT of the host, else [::1]:PORT
//! ```
//! The egress reads nothing of the bytes, so any protocol goes through. A client that is denied, or whose service is
//! away, gets a reset: there is no protocol in which to explain it.

use crate::decide::client_gone::Waiting;
use crate::decide::open::Speech;
use crate::decide::programs::caller::ConnectionOwner;
use crate::decide::state::Shared;
use crate::ingress::http::serve::carried;
use crate::ingress::tunnel;
use crate::memory::inbuf::InBuf;
use crate::seams::Connection;
use nexus_policy::net::{Attempt, Denial, Ingress, Target};
use std::net::Ipv4Addr;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Serves `stream`, which came to the listener of `port`, to its end.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, connection: Connection, port: u16) {
    let target = match Target::of_socket((Ipv4Addr::LOCALHOST, port).into()) {
        Ok(target) => target,
        Err(why) => {
            shared.unreadable(Ingress::HostPort, &Denial::unreadable(&why));
            return tunnel::reset(&stream);
        }
    };
    let waiting = Waiting { client: &stream, has_sent: false };
    let attempt = Attempt { target, way: Ingress::HostPort, program: None };
    let caller = ConnectionOwner::of(Some(connection));
    match shared.open(attempt, &caller, waiting, Speech::Unknown).await {
        Ok(opened) => carried(stream, InBuf::default(), opened).await,
        Err(refusal) => {
            drop(refusal);
            shared.pause_after_refusal().await;
            tunnel::reset(&stream);
        }
    }
}
