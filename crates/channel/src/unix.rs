//! Frames over a Unix stream socket, with descriptors beside them where the driver can pass any.

use crate::codec::{self, FrameError, HEADER};
use crate::descriptors;
use crate::frames::MAX_DESCRIPTORS;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

const _: () = assert!(MAX_DESCRIPTORS <= descriptors::MAX, "a frame's descriptors fit into one message");

/// The channel could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side is gone.
    #[error("the other side of the guest channel is gone")]
    Closed,
    /// The received bytes are not a frame, or the frame to send is too long.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// More waits for the other side than it may leave waiting.
    #[error("the guest takes nothing, and too much waits for it")]
    Full,
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
        let mut partial = Partial::default();
        loop {
            if let Some(frame) = self.advance(&mut partial, RecvFlags::empty())? {
                return Ok(frame);
            }
        }
    }

    /// Reads the part of the next frame that has arrived, without waiting. `None` when the rest of it has not come yet;
    /// then the next call goes on with the same `partial`. A hostile peer that stops in the middle of a frame holds the
    /// caller up in no way.
    pub fn receive_ready<F: DeserializeOwned>(
        &self,
        partial: &mut Partial,
    ) -> Result<Option<(F, Vec<OwnedFd>)>, ChannelError> {
        loop {
            match self.advance(partial, RecvFlags::DONTWAIT) {
                Ok(None) => {}
                Err(ChannelError::Io(Errno::AGAIN)) => return Ok(None),
                other => return other,
            }
        }
    }

    /// One read; never beyond the end of the frame, so that descriptors stay with theirs.
    fn advance<F: DeserializeOwned>(
        &self,
        partial: &mut Partial,
        flags: RecvFlags,
    ) -> Result<Option<(F, Vec<OwnedFd>)>, ChannelError> {
        let mut buffer = [0u8; CHUNK];
        let wanted = partial.wanted()?.min(CHUNK);
        let (count, descriptors) = self.receive_some(&mut buffer[..wanted], flags)?;
        partial.bytes.extend_from_slice(&buffer[..count]);
        partial.descriptors.extend(descriptors);
        if partial.descriptors.len() > MAX_DESCRIPTORS {
            return Err(ChannelError::TooManyDescriptors);
        }
        if partial.wanted()? > 0 {
            return Ok(None);
        }
        let Partial { bytes, descriptors } = std::mem::take(partial);
        Ok(Some((codec::decode(&bytes[HEADER..])?, descriptors)))
    }

    fn receive_some(&self, buffer: &mut [u8], flags: RecvFlags) -> Result<(usize, Vec<OwnedFd>), ChannelError> {
        let received = match descriptors::receive(&self.socket, buffer, flags) {
            Err(Errno::CONNRESET) => return Err(ChannelError::Closed),
            other => other?,
        };
        if received.is_truncated {
            return Err(ChannelError::TooManyDescriptors);
        }
        if received.bytes == 0 { Err(ChannelError::Closed) } else { Ok((received.bytes, received.descriptors)) }
    }

    /// Sends as much of an encoded frame as the kernel takes without waiting, and descriptors with its first byte.
    pub fn send_ready(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize, ChannelError> {
        match send_some(&self.socket, bytes, descriptors, SendFlags::DONTWAIT) {
            Err(ChannelError::Io(Errno::AGAIN)) => Ok(0),
            other => other,
        }
    }
}

/// Number of bytes that one read asks for: a page, which holds all frames of an ordinary run. The buffer lies on the stack,
/// and the guest shares its pages with each command that it starts until one of the two writes to them.
const CHUNK: usize = 4096;

/// A frame of which a part has come.
#[derive(Debug, Default)]
pub struct Partial {
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Partial {
    /// Returns the number of bytes missing up to the end of the header, or after it up to the end of the frame. Memory
    /// grows with what came, never with what was announced.
    fn wanted(&self) -> Result<usize, FrameError> {
        match self.bytes.first_chunk::<HEADER>() {
            None => Ok(HEADER - self.bytes.len()),
            Some(header) => Ok((HEADER + codec::payload_len(*header)?).saturating_sub(self.bytes.len())),
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
    let bytes = codec::encode(frame)?;
    let mut sent = send_some(&socket, &bytes, descriptors, SendFlags::empty())?;
    while sent < bytes.len() {
        // Descriptors go with the first byte and never again.
        sent += send_some(&socket, &bytes[sent..], &[], SendFlags::empty())?;
    }
    Ok(())
}

fn send_some(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, ChannelError> {
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(ChannelError::TooManyDescriptors);
    }
    match descriptors::send(socket, bytes, descriptors, flags) {
        Err(Errno::PIPE | Errno::CONNRESET) => Err(ChannelError::Closed),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{GuestFrame, HostFrame};
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
        let (done, answer) = std::sync::mpsc::channel();
        // The guest keeps its end open: who believes the length waits for ever.
        std::thread::spawn(move || done.send(host.receive::<GuestFrame>().map(drop)).ok());
        let answer =
            answer.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer, and no wait for the rest");
        assert!(matches!(answer, Err(ChannelError::Frame(_))));
        drop(guest);
    }

    #[test]
    fn a_frame_in_pieces_blocks_no_reader() {
        let (host, guest) = pair();
        let bytes = codec::encode(&GuestFrame::ForwardFailed { forward: 70_000, errno: 111 }).unwrap();
        let mut partial = Partial::default();
        for byte in &bytes[..bytes.len() - 1] {
            assert!(host.receive_ready::<GuestFrame>(&mut partial).unwrap().is_none());
            rustix::io::write(&guest, &[*byte]).unwrap();
        }
        assert!(host.receive_ready::<GuestFrame>(&mut partial).unwrap().is_none());
        // The rest of one frame and all of another: they stay apart.
        rustix::io::write(&guest, &[&bytes[bytes.len() - 1..], &bytes].concat()).unwrap();
        for _ in 0..2 {
            let (frame, _) = host.receive_ready::<GuestFrame>(&mut partial).unwrap().unwrap();
            assert_eq!(frame, GuestFrame::ForwardFailed { forward: 70_000, errno: 111 });
        }
        assert!(host.receive_ready::<GuestFrame>(&mut partial).unwrap().is_none());
        drop(guest);
        assert!(matches!(host.receive_ready::<GuestFrame>(&mut partial), Err(ChannelError::Closed)));
    }

    #[test]
    fn descriptors_in_pieces_of_one_frame_are_bounded_together() {
        let (host, guest) = pair();
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let bytes = codec::encode(&GuestFrame::Layer).unwrap();
        let mut partial = Partial::default();
        let mut answer = Ok(None);
        // Three pieces have more than one frame may have, and none of them alone.
        let piece = [reader.as_fd(); MAX_DESCRIPTORS / 2];
        for byte in &bytes {
            send_some(&guest, &[*byte], &piece, SendFlags::empty()).unwrap();
            answer = host.receive_ready::<GuestFrame>(&mut partial);
            if answer.is_err() {
                break;
            }
        }
        assert!(matches!(answer, Err(ChannelError::TooManyDescriptors)), "{answer:?}");
    }
}
