//! One client of a supervisor: what came from it, what is on its way to it, and what it wants.

use crate::session::wire::{Reader, ServerMessage, put};
use nexus_driver::frames::TerminalSize;
use rustix::io::Errno;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Bytes on their way to a client, above which nothing is added for it.
pub const MAX_WAITING: usize = 256 * 1024;

/// State and purpose of a client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The client has said nothing.
    New,
    /// The client has said its version.
    Greeted,
    /// The client reads the output of the sandbox.
    Viewer {
        /// Offset in the output of the next byte to send.
        position: u64,
        /// Offset at which new output begins; `None` after the client got [`ServerMessage::Live`].
        live_at: Option<u64>,
        /// True if the client wants new output, too.
        follow: bool,
        /// True if the client passes input to the command.
        input: bool,
    },
    /// The client has a command of its own.
    Commander {
        /// The number of the command.
        exec: u32,
    },
    /// The client waits for the end of the sandbox.
    Waiter,
    /// Everything was said; the rest is to be delivered.
    Leaving,
}

/// A client's connection to the supervisor.
pub struct Client {
    /// The socket of the connection.
    pub socket: UnixStream,
    /// The state and purpose of the connection.
    pub role: Role,
    /// Since when it has said nothing.
    pub since: Instant,
    /// The size of its terminal.
    pub size: Option<TerminalSize>,
    /// The bytes that came from the client.
    pub reader: Reader,
    out: Vec<u8>,
    sent: usize,
}

impl Client {
    /// Makes the state of a client that has just connected.
    pub fn new(socket: UnixStream, now: Instant) -> Self {
        let reader = Reader::default();
        Self { socket, role: Role::New, since: now, size: None, reader, out: Vec::new(), sent: 0 }
    }

    /// Reports whether the client has not sent its first request yet.
    pub fn is_new(&self) -> bool {
        matches!(self.role, Role::New | Role::Greeted)
    }

    /// Adds a message for the client. The supervisor makes these messages, and they are short.
    pub fn tell(&mut self, tell: &ServerMessage) {
        if put(&mut self.out, tell).is_err() {
            self.role = Role::Leaving;
        }
    }

    /// Sends the client a refusal of its request.
    pub fn refuse(&mut self, exit: u8, message: String) {
        self.tell(&ServerMessage::Refused { exit, message });
        self.role = Role::Leaving;
    }

    /// Reports that so many bytes of the input for the client's own command wait no more.
    pub fn taken(&mut self, bytes: usize) {
        if let Some(bytes) = u32::try_from(bytes).ok().filter(|bytes| *bytes > 0) {
            self.tell(&ServerMessage::Taken { bytes });
        }
    }

    /// Bytes that it has not taken yet.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Reports whether more may be added for the client.
    pub fn has_room(&self) -> bool {
        self.waiting() < MAX_WAITING
    }

    /// Reads the available bytes. Returns `false` when the client has disconnected.
    pub fn read(&mut self) -> bool {
        let mut buffer = [0u8; 16 * 1024];
        match rustix::io::read(&self.socket, &mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.reader.push(&buffer[..count]);
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }

    /// Writes as many bytes as the client takes without waiting. Returns `false` when the client has disconnected.
    pub fn write(&mut self) -> bool {
        match rustix::net::send(&self.socket, &self.out[self.sent..], rustix::net::SendFlags::NOSIGNAL) {
            Ok(count) => {
                self.sent += count;
                if self.sent == self.out.len() {
                    self.out.clear();
                    self.sent = 0;
                }
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Err(_) => false,
        }
    }
}

/// Accepts a connection of the same user, according to the kernel (SO_PEERCRED), and refuses every other user.
pub fn accept(listener: &std::os::unix::net::UnixListener) -> io::Result<Option<UnixStream>> {
    let (socket, _) = listener.accept()?;
    if rustix::net::sockopt::socket_peercred(&socket)?.uid != rustix::process::geteuid() {
        return Ok(None);
    }
    socket.set_nonblocking(true)?;
    Ok(Some(socket))
}
