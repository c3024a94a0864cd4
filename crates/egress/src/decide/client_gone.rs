//! Notices that a client has gone while nothing is read from it.
//!
//! A closed connection and one whose client only has nothing more to send look alike (both are a FIN), until something
//! is sent or the kernel of the client forgets the connection: then a reset comes.

use nexus_policy::net::Ingress;
use rustix::net::{RecvFlags, recv, sockopt};
use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Interval between two checks of a client that has sent bytes which are not read yet.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval between two probes whether the client's kernel still knows a half-closed connection.
const ASK_EVERY: Duration = Duration::from_secs(15);

/// Waits until the client has closed its connection, or its sending half. Bytes that it sent before stay unread.
pub(crate) async fn until_ended(client: &TcpStream) {
    loop {
        match client.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            Ok(_) | Err(_) => return,
        }
        // The call clears the readiness if there is nothing to read.
        let peek = || Ok(recv(client, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT)?.1);
        match client.try_io(Interest::READABLE, peek) {
            Ok(1..) => tokio::time::sleep(LOOK_EVERY).await,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => return,
        }
    }
}

/// Waits until nothing reaches the client any more.
pub(crate) async fn until_broken(client: &TcpStream) {
    loop {
        match client.ready(Interest::ERROR).await {
            Ok(ready) if ready.is_empty() => {}
            Ok(_) | Err(_) => return,
        }
    }
}

/// Client that waits until its connection is open.
#[derive(Clone, Copy)]
pub(crate) struct Waiting<'a> {
    pub(crate) client: &'a TcpStream,
    /// True if bytes that the client sent behind its request were read already.
    pub(crate) has_sent: bool,
}

impl Waiting<'_> {
    /// Waits until the client gives up a connection that is being opened. A client that asks a proxy usually sends
    /// nothing before the answer, and its end means that it has gone; but if it has sent bytes, it may have sent
    /// everything and listen, as other clients do.
    pub(crate) async fn until_gone(self, by: Ingress) {
        let asks = matches!(by, Ingress::Connect | Ingress::Socks5);
        if asks && !self.has_sent {
            until_ended(self.client).await;
            if !has_bytes(self.client) {
                return;
            }
        }
        until_broken(self.client).await;
    }
}

/// Reports whether the client has sent bytes that are not read yet.
fn has_bytes(client: &TcpStream) -> bool {
    matches!(recv(client, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((_, 1..)))
}

/// Waits until nothing reaches the client any more. Calls `ended` when the client ends its sending half; from then on
/// its kernel is asked whether it still knows the connection.
pub(crate) async fn watch(client: &TcpStream, ended: impl FnOnce()) {
    until_ended(client).await;
    ended();
    // The call fails only on a socket that is gone already.
    if ask(client).is_ok() {
        until_broken(client).await;
    }
}

/// Makes the kernel probe whether the peer still knows a connection that one side has ended. The probes also keep the
/// connection in the kernel's table of redirected ones, which forgets a silent half-closed one after a minute.
pub(crate) fn ask(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, ASK_EVERY)?;
    Ok(sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?)
}
