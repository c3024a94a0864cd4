//! Decides about open connections again when addresses or routes of this host change.

use crate::decide::registry::Entry;
use crate::decide::shared::Shared;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Minimum time between two checks of all connections: a router changes thousands of routes at once.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of messages that are read before the connections are checked.
const MOST_READ: usize = 256;

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

impl Shared {
    /// Asks about the addresses of every open connection again and cuts those that may not lead there any more.
    pub(crate) fn host_changed(&self) {
        // The number changes first: a connection that is entered from here on sees the new number and asks again on its
        // own.
        self.host_changes.fetch_add(1, Ordering::AcqRel);
        for entry in self.registry.entries() {
            self.ask_again(&entry);
        }
    }

    /// Asks again about the addresses of one connection, and cuts it if it may not lead there any more.
    pub(crate) fn ask_again(&self, entry: &Entry) {
        let policy = self.registry.policy();
        let decided =
            entry.learn(&policy, &*self.own, &self.followed).and_then(|()| entry.judge(&policy, self.clock.now()));
        if let Err(why) = decided {
            entry.cut(why);
        }
    }
}

/// Reads and drops the notices. Their content does not matter: the kernel is asked about each connection. A full queue
/// (ENOBUFS) is a notice.
fn drain(socket: &OwnedFd) {
    let mut space = [0; 8192];
    for _ in 0..MOST_READ {
        match rustix::net::recv(socket, &mut space[..], RecvFlags::DONTWAIT) {
            Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
            Err(_) => return,
        }
    }
}
