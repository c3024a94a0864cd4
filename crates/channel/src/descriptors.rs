//! Descriptors that go beside bytes over a Unix socket (SCM_RIGHTS of unix(7)).
//!
//! ```text
//!  send(bytes, descriptors) ─one sendmsg─▶ socket ─one recvmsg─▶ Received { bytes, descriptors }
//! ```
//! Received descriptors are closed on exec from the first instant, and belong to the [`Received`] that holds them: a
//! caller that drops it closes them all.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Maximum number of descriptors in one message.
pub const MAX: usize = 48;

/// One message that was received.
#[derive(Debug)]
pub struct Received {
    /// Number of bytes that were received. 0: the other side is gone.
    pub bytes: usize,
    /// Descriptors that came with these bytes.
    pub descriptors: Vec<OwnedFd>,
    /// True if more descriptors came than [`MAX`], or than this process may open; the list is then not whole.
    pub is_truncated: bool,
}

/// Sends bytes in one call, and descriptors with the first of them. Returns the number of bytes that the kernel took;
/// the descriptors have then gone. More than [`MAX`] descriptors are refused with `EINVAL`, and nothing is sent.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>], flags: SendFlags) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    // The space is aligned and may hold one more.
    if descriptors.len() > MAX {
        return Err(Errno::INVAL);
    }
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = flags | SendFlags::NOSIGNAL;
    retry_on_intr(|| rustix::net::sendmsg(socket.as_fd(), &[IoSlice::new(bytes)], &mut control, flags))
}

/// Receives at most as many bytes as the buffer holds, and the descriptors beside them, in one call.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let message =
        retry_on_intr(|| rustix::net::recvmsg(socket.as_fd(), &mut [IoSliceMut::new(buffer)], &mut control, flags))?;
    let mut descriptors = Vec::new();
    for item in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = item {
            descriptors.extend(list);
        }
    }
    let is_truncated = message.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > MAX;
    Ok(Received { bytes: message.bytes, descriptors, is_truncated })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::FdFlags;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    fn pair(kind: SocketType) -> (OwnedFd, OwnedFd) {
        rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn as_many_descriptors_as_a_message_has_arrive() {
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let (here, there) = pair(kind);
            let (reader, _writer) = rustix::pipe::pipe().unwrap();
            assert_eq!(send(&here, b"ab", &[reader.as_fd(); MAX], SendFlags::empty()), Ok(2));
            let received = receive(&there, &mut [0; 8], RecvFlags::empty()).unwrap();
            assert_eq!((received.bytes, received.descriptors.len(), received.is_truncated), (2, MAX, false));
            for descriptor in &received.descriptors {
                assert!(rustix::io::fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
            }
        }
    }

    #[test]
    fn one_descriptor_more_is_refused_by_either_side() {
        let (here, there) = pair(SocketType::STREAM);
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let too_many = [reader.as_fd(); MAX + 1];
        assert_eq!(send(&here, b"a", &too_many, SendFlags::empty()), Err(Errno::INVAL));
        // A peer that is not held to the bound of `send`.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX + 1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&too_many)));
        rustix::net::sendmsg(&here, &[IoSlice::new(b"a")], &mut control, SendFlags::empty()).unwrap();
        assert!(receive(&there, &mut [0; 8], RecvFlags::empty()).unwrap().is_truncated);
    }

    #[test]
    fn the_end_of_the_other_side_is_a_message_without_bytes() {
        let (here, there) = pair(SocketType::STREAM);
        drop(here);
        let received = receive(&there, &mut [0; 8], RecvFlags::empty()).unwrap();
        assert_eq!((received.bytes, received.descriptors.len()), (0, 0));
    }
}
