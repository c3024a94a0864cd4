//! Frames of the guest that the host has not taken yet.
//!
//! The guest must never wait for the host to listen: a host that is just sending a large request would wait for the
//! guest, and neither would ever move. So what does not fit into the channel waits here. It is small: at most one
//! end for each running command, and answers to what the host asked.

use nexus_channel::frames::GuestFrame;
use nexus_channel::{Channel, ChannelError, codec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::VecDeque;

/// More than any sound host can make us say before it listens: this many bytes, and nothing more is read from it.
const MAX_WAITING: usize = 4 << 20;

/// The way to the host.
#[derive(Debug)]
pub struct Outbox {
    channel: Channel,
    waiting: VecDeque<u8>,
}

impl Outbox {
    /// Makes an outbox that is empty.
    pub fn new(channel: Channel) -> Self {
        Self { channel, waiting: VecDeque::new() }
    }

    /// Returns whether no frame waits for the host.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether there is room for the answers to another request.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Sends a frame, now or as soon as the host takes it.
    pub fn send(&mut self, frame: &GuestFrame) -> Result<(), ChannelError> {
        self.waiting.extend(codec::encode(frame)?);
        self.flush()
    }

    /// Hands out a descriptor, at once or not at all. The inner error says why not, and then the host received nothing:
    /// a frame waits already, or the kernel has too many descriptors of this user under way (unix(7)), which is not a
    /// reason to end a sandbox, since other ones of the same user may cause it.
    pub fn hand_out(
        &mut self,
        frame: &GuestFrame,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Result<(), Errno>, ChannelError> {
        if !self.is_empty() {
            return Ok(Err(Errno::AGAIN));
        }
        let bytes = codec::encode(frame)?;
        match self.channel.send_ready(&bytes, &[descriptor]) {
            Ok(0) => Ok(Err(Errno::AGAIN)),
            Ok(sent) => {
                self.waiting.extend(&bytes[sent..]);
                Ok(Ok(()))
            }
            Err(ChannelError::Io(Errno::TOOMANYREFS)) => Ok(Err(Errno::TOOMANYREFS)),
            Err(error) => Err(error),
        }
    }

    /// Sends what the kernel takes.
    pub fn flush(&mut self) -> Result<(), ChannelError> {
        while !self.waiting.is_empty() {
            let sent = self.channel.send_ready(self.waiting.as_slices().0, &[])?;
            if sent == 0 {
                return Ok(());
            }
            self.waiting.drain(..sent);
        }
        Ok(())
    }

    /// Waits until the host has taken all, for the guest's last words.
    pub fn finish(&mut self) -> Result<(), ChannelError> {
        self.flush()?;
        while !self.waiting.is_empty() {
            match poll(&mut [PollFd::new(&self.channel, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            self.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    #[test]
    fn a_host_that_does_not_listen_delays_no_client_and_misses_nothing() {
        let (host, guest) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let (host, mut outbox) = (Channel::new(host), Outbox::new(Channel::new(guest)));
        let frame = |forward| GuestFrame::ForwardFailed { forward, errno: 111 };
        let mut said = 0;
        while outbox.is_empty() {
            outbox.send(&frame(said)).unwrap();
            said += 1;
        }
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(outbox.hand_out(&GuestFrame::Layer, reader.as_fd()).unwrap(), Err(Errno::AGAIN));
        // Far more than the channel holds.
        for _ in 0..30_000 {
            outbox.send(&frame(said)).unwrap();
            said += 1;
        }
        assert!(outbox.has_room());
        let listener = std::thread::spawn(move || {
            (0..said).for_each(|number| assert_eq!(host.receive::<GuestFrame>().unwrap().0, frame(number)));
        });
        outbox.finish().unwrap();
        listener.join().unwrap();
        assert!(outbox.is_empty());
    }

    #[test]
    fn what_waits_for_a_host_that_does_not_listen_is_bounded() {
        let (_host, guest) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let mut outbox = Outbox::new(Channel::new(guest));
        let frame = GuestFrame::ForwardFailed { forward: 1, errno: 111 };
        let length = codec::encode(&frame).unwrap().len();
        // As the guest does: a request is read, and answered, only while there is room.
        let answered = (0..2 * MAX_WAITING / length).take_while(|_| outbox.has_room() && outbox.send(&frame).is_ok());
        assert!(answered.count() < 2 * MAX_WAITING / length, "no end of answers");
        assert!(!outbox.has_room() && outbox.waiting.len() < MAX_WAITING + length);
    }
}
