//! Moves bytes between a connection on the host and one inside, both ways, with the end of each side.
//!
//! ```text
//!  host ──read──▶ buffer ──write──▶ inside        end of the one side's stream ─▶ buffer empty ─▶ shutdown of the other's
//!       ◀──write── buffer ◀──read──
//! ```

use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::net::TcpStream;

/// Bytes on their way in one direction.
const ROOM: usize = 64 * 1024;

/// Carries the bytes of one direction.
#[derive(Default)]
struct Flow {
    buffer: Vec<u8>,
    /// The reader said that nothing more comes.
    ended: bool,
    /// The writer knows that.
    is_passed_on: bool,
}

impl Flow {
    fn wants_to_read(&self) -> bool {
        !self.ended && self.buffer.len() < ROOM
    }

    fn step(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, scratch: &mut [u8]) -> rustix::io::Result<()> {
        if self.wants_to_read() {
            let room = scratch.len().min(ROOM - self.buffer.len());
            match rustix::io::read(from, &mut scratch[..room]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.buffer.extend_from_slice(&scratch[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        if !self.buffer.is_empty() {
            match rustix::net::send(to, &self.buffer, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.buffer.drain(..count)),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error),
            }
        }
        if self.ended && self.buffer.is_empty() && !self.is_passed_on {
            self.is_passed_on = true;
            rustix::net::shutdown(to, Shutdown::Write)?;
        }
        Ok(())
    }
}

/// Joins a pair of connections.
pub struct Relay {
    host: TcpStream,
    inside: Option<OwnedFd>,
    connected: bool,
    inward: Flow,
    outward: Flow,
}

impl Relay {
    /// Begins with a connection whose other half was asked for.
    pub fn new(host: TcpStream) -> Self {
        Self { host, inside: None, connected: false, inward: Flow::default(), outward: Flow::default() }
    }

    /// Takes the other half, which may still be connecting.
    pub fn join(&mut self, inside: OwnedFd) {
        self.inside = Some(inside);
    }

    /// Reports whether the other half is there.
    pub fn is_joined(&self) -> bool {
        self.inside.is_some()
    }

    /// Returns what to wait for on the host's side; `None` when it has nothing more to send or receive.
    pub fn host(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.inside.as_ref()?;
        let reads = self.connected && self.inward.wants_to_read();
        let writes = !self.outward.buffer.is_empty();
        let over = self.inward.ended && self.outward.is_passed_on;
        (!over).then(|| flags(reads, writes)).flatten().map(|flags| (self.host.as_fd(), flags))
    }

    /// Returns what to wait for inside.
    pub fn inside(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let inside = self.inside.as_ref()?;
        if !self.connected {
            return Some((inside.as_fd(), PollFlags::OUT));
        }
        let over = self.outward.ended && self.inward.is_passed_on;
        let (reads, writes) = (self.outward.wants_to_read(), !self.inward.buffer.is_empty());
        (!over).then(|| flags(reads, writes)).flatten().map(|flags| (inside.as_fd(), flags))
    }

    /// Moves what can be moved. `Err` when one side is gone.
    pub fn step(&mut self, scratch: &mut [u8]) -> rustix::io::Result<()> {
        let Some(inside) = &self.inside else { return Ok(()) };
        if !self.connected {
            rustix::net::sockopt::socket_error(inside)??;
            // Not yet, or it is: then there is a peer.
            match rustix::net::getpeername(inside) {
                Ok(_) => self.connected = true,
                Err(Errno::NOTCONN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.inward.step(self.host.as_fd(), inside.as_fd(), scratch)?;
        self.outward.step(inside.as_fd(), self.host.as_fd(), scratch)
    }

    /// Reports whether both directions have ended.
    pub fn is_over(&self) -> bool {
        self.inward.is_passed_on && self.outward.is_passed_on
    }

    /// Reports whether everything that was sent inside has been passed on.
    pub fn said_all(&self) -> bool {
        self.outward.is_passed_on
    }
}

/// Returns `None` for nothing: poll(2) reports a peer that hung up even where it was not asked, again and again.
fn flags(reads: bool, writes: bool) -> Option<PollFlags> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, reads);
    flags.set(PollFlags::OUT, writes);
    (!flags.is_empty()).then_some(flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_nonblocking(true).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn nothing_is_polled_for_nothing_and_all_bytes_arrive_all_the_same() {
        // More than all buffers of the kernel on the way.
        const BYTES: usize = 64 << 20;
        let (host, mut client) = pair();
        let (inside, mut server) = pair();
        let mut relay = Relay::new(host);
        relay.join(inside.into());
        let sender = std::thread::spawn(move || server.write_all(&vec![7; BYTES]).unwrap());
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut scratch = vec![0; ROOM];
        let mut idle = false;
        // The client reads nothing yet, and the server will have hung up: the side that has nothing to say is left out.
        while !idle {
            relay.step(&mut scratch).unwrap();
            idle = relay.outward.buffer.len() >= ROOM && relay.inside().is_none();
        }
        assert_eq!(relay.host().map(|(_, flags)| flags), Some(PollFlags::OUT));
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all.len()
        });
        while !relay.is_over() {
            assert!(relay.host().is_some() || relay.inside().is_some(), "nothing would wake it");
            relay.step(&mut scratch).unwrap();
        }
        drop(relay);
        sender.join().unwrap();
        assert_eq!(reader.join().unwrap(), BYTES);
    }
}
