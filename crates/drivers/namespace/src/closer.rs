//! A process that closes descriptors that the launcher no longer needs.
//!
//! ```text
//!  launcher ──mount namespaces of dead sandboxes, mounts that have done their part──▶ closer: closes them, waits
//! ```
//! The kernel waits for all processors when it takes mounts apart (an RCU grace period; on a busy machine ten
//! milliseconds and more), and the process that closes the last descriptor waits as long. The launcher has one thread, and launches
//! would wait. The closer ends when the launcher does.

use nexus_channel::descriptors;
use nexus_jail::clone::{Cloned, clone_process, exit_now};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;

/// The launcher's side.
#[derive(Debug)]
pub struct Closer {
    socket: OwnedFd,
}

impl Closer {
    /// Starts it. Early, so that it holds nothing of what the launcher opens later.
    pub fn start() -> io::Result<Self> {
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        match clone_process(0, None)? {
            Cloned::Child => {
                drop(socket);
                let work = std::panic::AssertUnwindSafe(|| close_what_comes(&theirs));
                exit_now(std::panic::catch_unwind(work).map_or(101, |ended| i32::from(ended.is_err())));
            }
            // It ends on its own, and is waited for with all other children.
            Cloned::Parent(_) => Ok(Self { socket }),
        }
    }

    /// Hands descriptors over. Those that the other process does not take are closed here, which is only slower.
    pub fn close_later(&self, closing: &mut Vec<OwnedFd>) {
        for some in closing.chunks(descriptors::MAX) {
            if self.hand_over(some).is_err() {
                break;
            }
        }
        closing.clear();
    }

    fn hand_over(&self, some: &[OwnedFd]) -> io::Result<()> {
        let some: Vec<_> = some.iter().map(AsFd::as_fd).collect();
        descriptors::send(&self.socket, b"d", &some, SendFlags::DONTWAIT)?;
        Ok(())
    }
}

fn close_what_comes(socket: &OwnedFd) -> io::Result<()> {
    // Each message is dropped with the descriptors that came with it.
    while descriptors::receive(socket, &mut [0], RecvFlags::empty())?.bytes > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    #[test]
    fn what_is_handed_over_is_closed() {
        let socket = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = socket.unwrap();
        let (ours, end) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut closing: Vec<OwnedFd> = vec![end.into()];
        closing.extend((0..descriptors::MAX).map(|_| OwnedFd::from(ours.try_clone().unwrap())));
        Closer { socket }.close_later(&mut closing);
        assert!(closing.is_empty());
        close_what_comes(&theirs).unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!((&ours).read(&mut [0]).unwrap(), 0, "nobody holds the other end any more");
    }
}
