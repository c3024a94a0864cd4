//! Publishes ports: ports of the host's loopback lead into a sandbox.
//!
//! ```text
//!  listener on 127.0.0.1 ─accept─▶ asked (the guest connects inside) ─▶ relay ─▶ both directions ended, or one is gone
//!                                      └─ nothing listens there ─▶ closed
//! ```
//! The host connects to the inside, never the other way round, and only on loopback: a sandbox gets no way out by it.

use crate::live::control::SandboxControl;
use crate::live::relay::Relay;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Bounds the connections at one time; further ones wait to be accepted.
const MAX_RELAYS: usize = 256;
/// Bounds the connections that wait for the answer of the guest.
const MAX_ASKED: usize = 16;
/// The time for connections after the end of the sandbox: bytes that were sent before are still passed on.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The time without accepting when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A port of the host and one inside, written `HOSTPORT:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    host: u16,
    inside: u16,
}

/// A text is not a pair of ports.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not HOSTPORT:PORT or PORT; 0:PORT picks a free port of this machine")]
pub struct ParsePublishError {
    text: String,
}

impl Publish {
    /// Reports whether the port of the host is still to be picked.
    pub fn picks(self) -> bool {
        self.host == 0
    }
}

impl FromStr for Publish {
    type Err = ParsePublishError;
    fn from_str(text: &str) -> Result<Self, ParsePublishError> {
        let (host, inside) = text.split_once(':').unwrap_or((text, text));
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
        match (number(host), number(inside)) {
            (Some(host), Some(inside)) if inside != 0 => Ok(Self { host, inside }),
            _ => Err(ParsePublishError { text: text.to_owned() }),
        }
    }
}

/// A port cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The sandbox may connect to this port of the host, and would reach itself.
    #[error("port {port} of this machine is published, and is opened to the sandbox as a port of the host")]
    OpenedToSandbox {
        /// The port of the host.
        port: u16,
    },
    /// The port cannot be taken.
    #[error("port {host} of 127.0.0.1 cannot be published: {source}")]
    Untaken {
        /// The port of the host.
        host: u16,
        /// The port inside.
        inside: u16,
        /// The answer of the system.
        source: io::Error,
    },
}

impl PublishError {
    /// Returns the stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OpenedToSandbox { .. } => "host_port",
            Self::Untaken { .. } => "publish",
        }
    }
}

struct Listener {
    socket: TcpListener,
    host: u16,
    inside: u16,
}

/// Holds the published ports and the connections through them.
#[derive(Default)]
pub struct Ports {
    listeners: Vec<Listener>,
    relays: BTreeMap<u32, Relay>,
    next: u32,
    asked: usize,
    paused_until: Option<Instant>,
    closing: Option<Instant>,
    scratch: Vec<u8>,
}

/// Names a descriptor of published ports.
#[derive(Debug, Clone, Copy)]
pub enum PortToken {
    /// A listener on the host.
    Listener(usize),
    /// The side of a connection on the host.
    Host(u32),
    /// The side of a connection in the sandbox.
    Sandbox(u32),
}

impl Ports {
    /// Binds the published ports on the host before anything is started.
    ///
    /// A port of the host that is opened to the sandbox (`--allow-host-port`) cannot be published too: the sandbox
    /// would connect to itself through the host.
    pub fn listen(wanted: &[Publish], host_ports: &[u16]) -> Result<Self, PublishError> {
        let listeners = wanted.iter().map(|publish| {
            let failed = |source| PublishError::Untaken { host: publish.host, inside: publish.inside, source };
            if host_ports.contains(&publish.host) {
                return Err(PublishError::OpenedToSandbox { port: publish.host });
            }
            let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, publish.host)).map_err(failed)?;
            socket.set_nonblocking(true).map_err(failed)?;
            let host = socket.local_addr().map_err(failed)?.port();
            if host_ports.contains(&host) {
                return Err(PublishError::OpenedToSandbox { port: host });
            }
            Ok(Listener { socket, host, inside: publish.inside })
        });
        Ok(Self { listeners: listeners.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Returns the pairs of host port and port inside.
    pub fn published(&self) -> Vec<(u16, u16)> {
        self.listeners.iter().map(|listener| (listener.host, listener.inside)).collect()
    }

    /// Names the descriptors to wait for.
    pub fn watch<'a>(&'a self, mut add: impl FnMut(PortToken, BorrowedFd<'a>, PollFlags)) {
        if self.relays.len() < MAX_RELAYS && self.asked < MAX_ASKED && self.paused_until.is_none() {
            for (at, listener) in self.listeners.iter().enumerate() {
                add(PortToken::Listener(at), listener.socket.as_fd(), PollFlags::IN);
            }
        }
        for (number, relay) in &self.relays {
            if let Some((fd, flags)) = relay.host() {
                add(PortToken::Host(*number), fd, flags);
            }
            if let Some((fd, flags)) = relay.inside() {
                add(PortToken::Sandbox(*number), fd, flags);
            }
        }
    }

    /// Moves bytes, or accepts, where a descriptor is ready.
    pub fn ready(&mut self, token: PortToken, found: PollFlags, inside: &mut SandboxControl) {
        match token {
            PortToken::Listener(at) => self.accept(at, inside),
            PortToken::Host(number) | PortToken::Sandbox(number) => {
                let Some(relay) = self.relays.get_mut(&number) else { return };
                self.scratch.resize(64 * 1024, 0);
                let gone = relay.step(&mut self.scratch).is_err() || found.contains(PollFlags::ERR);
                if gone || relay.is_over() {
                    self.relays.remove(&number);
                }
            }
        }
    }

    fn accept(&mut self, at: usize, inside: &mut SandboxControl) {
        let Some(listener) = self.listeners.get(at) else { return };
        match listener.socket.accept() {
            Ok((socket, _)) if socket.set_nonblocking(true).is_ok() => {
                let number = self.next;
                self.next = self.next.wrapping_add(1);
                // If the guest cannot be asked, the connection is closed, as by a port on which no process listens.
                if inside.forward(number, listener.inside).is_ok() {
                    self.asked += 1;
                    self.relays.insert(number, Relay::new(socket));
                }
            }
            Ok(_) => {}
            // The client has left again.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
            // No descriptors, or no memory: later there may be some.
            Err(_) => self.paused_until = Some(Instant::now() + PAUSE),
        }
    }

    /// Joins the connection that the guest made, or is about to make.
    pub fn forwarded(&mut self, number: u32, socket: OwnedFd) {
        self.asked = self.asked.saturating_sub(1);
        if let Some(relay) = self.relays.get_mut(&number) {
            relay.join(socket);
        }
    }

    /// Closes a connection to a port on which no process listens inside.
    pub fn failed(&mut self, number: u32) {
        self.asked = self.asked.saturating_sub(1);
        self.relays.remove(&number);
    }

    /// When [`Ports::tick`] has something to do.
    pub fn next_event(&self) -> Option<Instant> {
        let closing = if self.relays.is_empty() { None } else { self.closing };
        [self.paused_until, closing].into_iter().flatten().min()
    }

    /// Looks at the clock.
    pub fn tick(&mut self, now: Instant) {
        if self.paused_until.is_some_and(|at| now >= at) {
            self.paused_until = None;
        }
        if let Some(end) = self.closing {
            self.relays.retain(|_, relay| now < end && relay.is_joined() && !relay.said_all());
        }
    }

    /// Takes nothing new after the end of the sandbox, and passes its last bytes on.
    pub fn close(&mut self) {
        self.listeners.clear();
        self.closing = Some(Instant::now() + LAST_WORDS);
    }

    /// Closes every connection at once.
    pub fn drop_all(&mut self) {
        self.listeners.clear();
        self.relays.clear();
    }

    /// Reports whether no connection is left.
    pub fn is_done(&self) -> bool {
        self.relays.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_ports_or_one_for_both() {
        assert_eq!("8080:80".parse(), Ok(Publish { host: 8080, inside: 80 }));
        assert_eq!("80".parse(), Ok(Publish { host: 80, inside: 80 }));
        assert_eq!("0:80".parse(), Ok(Publish { host: 0, inside: 80 }));
        for bad in ["", "0", "80:0", "x:80", "70000:1", "1:2:3", "+1:2", "127.0.0.1:80:80", ":80", "80:"] {
            assert!(bad.parse::<Publish>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_port_that_is_taken_is_refused_by_name() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let host = taken.local_addr().unwrap().port();
        let error = Ports::listen(&[Publish { host, inside: 80 }], &[]).err().unwrap();
        assert!(matches!(error, PublishError::Untaken { host: refused, .. } if refused == host), "{error}");
        let ports = Ports::listen(&[Publish { host: 0, inside: 80 }], &[]).unwrap();
        assert!(matches!(ports.published()[..], [(host, 80)] if host != 0));
    }
}
