//! Decides about open connections again when addresses or routes of this host change.

use crate::decide::state::Shared;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::sync::Weak;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Minimum time between two checks of all connections: a router changes thousands of routes at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of messages that are read before the connections are checked.
const MAX_READ: usize = 256;

/// Serves the notices of `changes` until the egress ends.
pub(crate) async fn watch(shared: Weak<Shared>, changes: AsyncFd<OwnedFd>) {
    loop {
        let Ok(mut ready) = changes.readable().await else { return };
        drain(changes.get_ref());
        ready.clear_ready();
        drop(ready);
        let Some(shared) = shared.upgrade() else { return };
        shared.host_changed();
        drop(shared);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads and drops the notices. Their content does not matter: the kernel is asked about each connection. A full queue
/// (ENOBUFS) is a notice.
fn drain(socket: &OwnedFd) {
    let mut space = [0; 8192];
    for _ in 0..MAX_READ {
        match rustix::net::recv(socket, &mut space[..], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
