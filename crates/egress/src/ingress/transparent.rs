//! Serves redirected TCP, for programs that know nothing of a proxy.
//!
//! The kernel knows the original destination of a connection (`SO_ORIGINAL_DST`). A synthetic address (`synthetic`) is
//! decided as the name that the DNS stub gave it for; any other address as itself. The client's protocol cannot carry
//! the reason of a denial, so it gets a reset; the reason is in the audit and in the summary.

use crate::decide::client_gone::Waiting;
use crate::decide::denials;
use crate::decide::open::Speech;
use crate::decide::programs::caller::ConnectionOwner;
use crate::decide::state::Shared;
use crate::ingress::http::serve::carried;
use crate::ingress::stub_addresses::meant;
use crate::ingress::tunnel;
use crate::memory::inbuf::InBuf;
use crate::seams::{Connection, Destinations};
use nexus_policy::net::{Attempt, Denial, Ingress, Target};
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tokio::net::TcpStream;

/// Finder that asks the kernel's connection tracking.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel;

impl Destinations for Kernel {
    fn of(&self, connection: BorrowedFd<'_>, v6: bool) -> io::Result<SocketAddr> {
        if v6 {
            Ok(SocketAddr::V6(sockopt::ipv6_original_dst(connection)?))
        } else {
            Ok(SocketAddr::V4(sockopt::ip_original_dst(connection)?))
        }
    }
}

/// Serves `stream` to its end.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr, v6: bool) {
    let (target, remote) = match target(&shared, &stream, v6) {
        Ok(found) => found,
        Err(denial) => {
            shared.unreadable(Ingress::Transparent, &denial);
            return tunnel::reset(&stream);
        }
    };
    let caller = ConnectionOwner::of(Some(Connection { local: peer, remote }));
    let waiting = Waiting { client: &stream, has_sent: false };
    let attempt = Attempt { target, way: Ingress::Transparent, program: None };
    if let Ok(opened) = shared.open(attempt, &caller, waiting, Speech::Unknown).await {
        carried(stream, InBuf::default(), opened).await;
    } else {
        shared.pause_after_refusal().await;
        tunnel::reset(&stream);
    }
}

/// Returns the target that the client meant, and the address to which it connected.
fn target(shared: &Shared, stream: &TcpStream, v6: bool) -> Result<(Target, SocketAddr), Denial> {
    use std::os::fd::AsFd;
    // Without the kernel's answer the destination is not known, and nothing else may stand in for it.
    let address = shared.destinations.of(stream.as_fd(), v6).map_err(|error| {
        denials::internal(format!("the destination of a redirected connection is unknown: {error}"))
    })?;
    let target = Target::of_socket(address).map_err(|why| Denial::unreadable(&why))?;
    Ok((meant(shared, target)?, address))
}
