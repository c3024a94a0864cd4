//! A process that closes descriptors that the launcher no longer needs.
//!
//! ```text
//!  launcher ──mount namespaces of dead sandboxes, mounts that have done their part──▶ closer: closes them, waits
//! ```
//! The kernel waits for all processors when it takes mounts apart (an RCU grace period; on a busy machine ten
//! milliseconds and more), and the process that closes the last descriptor waits as long. The launcher has one thread, and launches
//! would wait. The closer ends when the launcher does.

use nexus_jail::clone::{Cloned, clone_process, exit_now};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Maximum number of descriptors in one message.
const MAX: usize = 32;

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
        for some in closing.chunks(MAX) {
            if self.hand_over(some).is_err() {
                break;
            }
        }
        closing.clear();
    }

    fn hand_over(&self, some: &[OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = some.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(b"d")], &mut control, flags)?;
        Ok(())
    }
}

fn close_what_comes(socket: &OwnedFd) -> io::Result<()> {
    loop {
        let mut byte = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
        // Dropped with what is in it.
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        if message.bytes == 0 {
            return Ok(());
        }
    }
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
        closing.extend((0..MAX).map(|_| OwnedFd::from(ours.try_clone().unwrap())));
        Closer { socket }.close_later(&mut closing);
        assert!(closing.is_empty());
        close_what_comes(&theirs).unwrap();
        ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!((&ours).read(&mut [0]).unwrap(), 0, "nobody holds the other end any more");
    }
}
