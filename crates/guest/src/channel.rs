//! Frames over a Unix stream socket, with descriptors beside them where the driver can pass any.

use nexus_model::frames::{self, FrameError, HEADER};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Most descriptors that come with one frame: stdin, stdout, stderr.
pub const MAX_DESCRIPTORS: usize = 3;

/// The channel could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side is gone.
    #[error("the other side of the guest channel is gone")]
    Closed,
    /// What came is no frame, or what was to be sent is too long.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// More descriptors than any frame has.
    #[error("a frame came with more than {MAX_DESCRIPTORS} descriptors")]
    TooManyDescriptors,
    /// The kernel refused.
    #[error("guest channel: {0}")]
    Io(#[from] Errno),
}

/// One end. A clone is the same end.
#[derive(Debug, Clone)]
pub struct Channel {
    socket: Arc<OwnedFd>,
}

impl Channel {
    /// Takes a connected stream socket.
    #[must_use]
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket: Arc::new(socket) }
    }

    /// Sends a frame and, with its first byte, descriptors.
    pub fn send<F: Serialize>(&self, frame: &F, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
        send(&self.socket, frame, descriptors)
    }

    /// Waits for a frame of the other side.
    pub fn receive<F: DeserializeOwned>(&self) -> Result<(F, Vec<OwnedFd>), ChannelError> {
        let mut header = [0u8; HEADER];
        let (mut read, descriptors) = self.receive_start(&mut header)?;
        while read < HEADER {
            read += self.receive_some(&mut header[read..])?;
        }
        let mut payload = vec![0u8; frames::payload_len(header)?];
        let mut filled = 0;
        while filled < payload.len() {
            filled += self.receive_some(&mut payload[filled..])?;
        }
        Ok((frames::decode(&payload)?, descriptors))
    }

    /// The first bytes of a frame, which carry the descriptors.
    fn receive_start(&self, header: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), ChannelError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = rustix::io::retry_on_intr(|| {
            rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(header)], &mut control, RecvFlags::CMSG_CLOEXEC)
        })?;
        let mut descriptors = Vec::new();
        for item in control.drain() {
            if let RecvAncillaryMessage::ScmRights(list) = item {
                descriptors.extend(list);
            }
        }
        if message.flags.contains(ReturnFlags::CTRUNC) {
            return Err(ChannelError::TooManyDescriptors);
        }
        if message.bytes == 0 { Err(ChannelError::Closed) } else { Ok((message.bytes, descriptors)) }
    }

    fn receive_some(&self, buffer: &mut [u8]) -> Result<usize, ChannelError> {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut *buffer)) {
            Ok(0) | Err(Errno::CONNRESET) => Err(ChannelError::Closed),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sends a frame over a socket that is not wrapped.
pub fn send<F: Serialize>(socket: impl AsFd, frame: &F, descriptors: &[BorrowedFd<'_>]) -> Result<(), ChannelError> {
    let bytes = frames::encode(frame)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(ChannelError::TooManyDescriptors);
    }
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = [IoSlice::new(&bytes[sent..])];
        let result = rustix::net::sendmsg(socket.as_fd(), &rest, &mut control, SendFlags::NOSIGNAL);
        match result {
            Ok(count) => sent += count,
            Err(Errno::INTR) => continue,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(ChannelError::Closed),
            Err(error) => return Err(error.into()),
        }
        // Descriptors go with the first byte and never again.
        control.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::frames::{GuestFrame, HostFrame};
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    fn pair() -> (Channel, Channel) {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[test]
    fn a_frame_crosses_with_its_descriptors() {
        let (host, guest) = pair();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        host.send(&HostFrame::Shutdown, &[writer.as_fd()]).unwrap();
        drop(writer);
        let (frame, descriptors) = guest.receive::<HostFrame>().unwrap();
        assert_eq!((frame, descriptors.len()), (HostFrame::Shutdown, 1));
        rustix::io::write(&descriptors[0], b"x").unwrap();
        let mut byte = [0u8; 2];
        assert_eq!(rustix::io::read(&reader, &mut byte).unwrap(), 1);
    }

    #[test]
    fn frames_stay_apart_and_the_end_is_seen() {
        let (host, guest) = pair();
        guest.send(&GuestFrame::Hello { version: 1 }, &[]).unwrap();
        guest.send(&GuestFrame::Layer, &[]).unwrap();
        drop(guest);
        assert_eq!(host.receive::<GuestFrame>().unwrap().0, GuestFrame::Hello { version: 1 });
        assert_eq!(host.receive::<GuestFrame>().unwrap().0, GuestFrame::Layer);
        assert!(matches!(host.receive::<GuestFrame>(), Err(ChannelError::Closed)));
        assert!(matches!(host.send(&HostFrame::Shutdown, &[]), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_hostile_length_is_refused_without_reading_it() {
        let (host, guest) = pair();
        rustix::io::write(&guest, &[0xff; 16]).unwrap();
        assert!(matches!(host.receive::<GuestFrame>(), Err(ChannelError::Frame(_))));
    }
}
