//! Asks the kernel for one TCP socket by its two ends (sock_diag(7)): its inode, which the descriptors of its holders
//! show.
//!
//! The table in `/proc/net/tcp` has the same, after a walk over every bucket that the host has for sockets: 10 ms
//! instead of 20 µs.

use crate::seams::Connection;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// SOCK_DIAG_BY_FAMILY of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// Flag NLM_F_REQUEST of linux/netlink.h.
const REQUEST: u16 = 1;
/// Message type NLMSG_ERROR of linux/netlink.h.
const ERROR: u16 = 2;
const HEADER: usize = 16;
/// `struct inet_diag_req_v2` of linux/inet_diag.h.
const QUESTION: usize = 56;
/// `struct inet_diag_msg`; attributes follow.
const ANSWER: usize = 72;
const TCP: u8 = 6;
/// Value for a question without a cookie (INET_DIAG_NOCOOKIE, twice).
const ANY_COOKIE: [u8; 8] = [0xff; 8];
/// Time limit for an answer of the kernel. It answers at once; no thread may hang for ever if it does not.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of answers to older questions that may lie before the awaited one.
const MAX_STALE: usize = 16;

/// Questions about the sockets of the network namespace in which the socket was made.
#[derive(Debug)]
pub struct SockDiag {
    socket: OwnedFd,
    asked: AtomicU32,
    /// Is held from a question to its answer: another thread would take the answer for a stale one. A
    /// look-up whose client has gone may still ask while the next one does.
    turn: Mutex<()>,
}

impl SockDiag {
    /// Uses a socket that was made elsewhere.
    pub fn with(socket: OwnedFd) -> io::Result<Self> {
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self { socket, asked: AtomicU32::new(0), turn: Mutex::default() })
    }

    /// Opens a socket for the network of this process.
    pub fn here() -> io::Result<Self> {
        let kind = SocketType::DGRAM;
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
        Self::with(socket)
    }

    /// Returns the inode of the socket with these ends. `None` if no such socket exists, or no process holds it.
    pub fn inode(&self, connection: Connection) -> io::Result<Option<u64>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        rustix::net::send(&self.socket, &question(number, connection), SendFlags::empty())?;
        for _ in 0..MAX_STALE {
            let mut space = [0; 1024];
            let (_, length) = rustix::net::recv(self.fd(), &mut space[..], RecvFlags::empty())?;
            match answer(space.get(..length).unwrap_or_default(), number, connection) {
                DiagAnswer::Inode(inode) => return Ok(Some(inode)),
                DiagAnswer::Nothing => return Ok(None),
                DiagAnswer::Failed(errno) => return Err(errno.into()),
                DiagAnswer::Stale => {}
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Answer of the kernel.
#[derive(Debug, PartialEq, Eq)]
enum DiagAnswer {
    Inode(u64),
    Nothing,
    Failed(Errno),
    /// Answer to another question.
    Stale,
}

fn question(number: u32, connection: Connection) -> Vec<u8> {
    let v4 = connection.local.is_ipv4();
    let mut bytes = Vec::with_capacity(HEADER + QUESTION);
    bytes.extend(u32::try_from(HEADER + QUESTION).unwrap_or_default().to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend(number.to_ne_bytes());
    bytes.extend([0; 4]);
    let family = if v4 { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend([u8::try_from(family.as_raw()).unwrap_or_default(), TCP, 0, 0]);
    // Sockets in every state.
    bytes.extend([0xff; 4]);
    bytes.extend(connection.local.port().to_be_bytes());
    bytes.extend(connection.remote.port().to_be_bytes());
    bytes.extend(address(connection.local));
    bytes.extend(address(connection.remote));
    // Sockets on every interface.
    bytes.extend([0; 4]);
    bytes.extend(ANY_COOKIE);
    bytes
}

fn address(end: SocketAddr) -> [u8; 16] {
    match end.ip() {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut wide = [0; 16];
            wide[..4].copy_from_slice(&ip.octets());
            wide
        }
    }
}

fn answer(bytes: &[u8], number: u32, asked: Connection) -> DiagAnswer {
    let malformed = DiagAnswer::Failed(Errno::PROTO);
    let u16_at = |at: usize| bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map(u16::from_ne_bytes);
    let u32_at = |at: usize| bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map(u32::from_ne_bytes);
    let (Some(kind), Some(of)) = (u16_at(4), u32_at(8)) else { return malformed };
    if of != number {
        return DiagAnswer::Stale;
    }
    if kind == ERROR {
        return match u32_at(HEADER).map(|code| Errno::from_raw_os_error(0_i32.wrapping_sub_unsigned(code))) {
            Some(Errno::NOENT) => DiagAnswer::Nothing,
            Some(errno) => DiagAnswer::Failed(errno),
            None => malformed,
        };
    }
    if kind != BY_FAMILY || bytes.len() < HEADER + ANSWER {
        return malformed;
    }
    let ports = |at: usize| bytes.get(at..at + 2).and_then(|part| part.try_into().ok()).map(u16::from_be_bytes);
    // If no connection has these ends, the kernel answers with the listener at the first.
    if ports(HEADER + 4) != Some(asked.local.port()) || ports(HEADER + 6) != Some(asked.remote.port()) {
        return DiagAnswer::Nothing;
    }
    match u32_at(HEADER + ANSWER - 4) {
        Some(0) => DiagAnswer::Nothing,
        Some(inode) => DiagAnswer::Inode(inode.into()),
        None => malformed,
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test is its own client")]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    fn inode(stream: &impl AsRawFd) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap().ino()
    }

    #[test]
    fn a_socket_is_found_by_both_its_ends_and_by_nothing_less() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let diag = SockDiag::here().unwrap();
            let listener = TcpListener::bind(listen).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, local) = listener.accept().unwrap();
            let remote = server.local_addr().unwrap();
            assert_eq!(diag.inode(Connection { local, remote }).unwrap(), Some(inode(&client)), "{listen}");
            assert_eq!(diag.inode(Connection { local: remote, remote: local }).unwrap(), Some(inode(&server)));
            for other in [local.port(), 1] {
                let remote = SocketAddr::new(remote.ip(), other);
                assert_eq!(diag.inode(Connection { local, remote }).unwrap(), None, "{listen}");
            }
            // The listener has the same end, and is not this connection.
            let absent = SocketAddr::new(remote.ip(), 9);
            assert_eq!(diag.inode(Connection { local: remote, remote: absent }).unwrap(), None, "{listen}");
            drop(client);
            assert_eq!(diag.inode(Connection { local, remote }).unwrap(), None, "{listen}: closed, and nobody's");
        }
    }

    /// As when the client of a look-up has gone and the next look-up begins.
    #[test]
    fn threads_that_ask_at_one_time_get_their_own_answers() {
        let diag = SockDiag::here().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, local) = listener.accept().unwrap();
        let remote = server.local_addr().unwrap();
        std::thread::scope(|scope| {
            let ask = || (0..500).all(|_| diag.inode(Connection { local, remote }).unwrap() == Some(inode(&client)));
            let all: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            assert!(all.into_iter().all(|one| one.join().unwrap()));
        });
    }

    #[test]
    fn an_ipv6_socket_that_talks_ipv4_is_found_by_what_its_server_sees() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), remote.port()));
        let client = TcpStream::connect(mapped).unwrap();
        let (_server, local) = listener.accept().unwrap();
        assert!(local.is_ipv4());
        let found = SockDiag::here().unwrap().inode(Connection { local, remote });
        assert_eq!(found.unwrap(), Some(inode(&client)));
    }

    #[test]
    fn two_sockets_at_one_port_are_distinguished() {
        let diag = SockDiag::here().unwrap();
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap()];
        let bind = |to: &TcpListener, at: SocketAddr| {
            let socket =
                rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::sockopt::set_socket_reuseport(&socket, true).unwrap();
            rustix::net::bind(&socket, &at).unwrap();
            rustix::net::connect(&socket, &to.local_addr().unwrap()).unwrap();
            TcpStream::from(socket)
        };
        let first = bind(&listeners[0], "127.0.0.1:0".parse().unwrap());
        let local = first.local_addr().unwrap();
        let second = bind(&listeners[1], local);
        for (listener, client) in listeners.iter().zip([&first, &second]) {
            let remote = listener.local_addr().unwrap();
            assert_eq!(diag.inode(Connection { local, remote }).unwrap(), Some(inode(client)));
        }
    }

    #[test]
    fn answers_that_are_cut_wrong_or_of_another_question_are_no_socket() {
        let end = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let asked = Connection { local: end(7), remote: end(8) };
        let mut bytes = question(5, asked);
        bytes.resize(HEADER + ANSWER, 0);
        bytes[HEADER + 4..HEADER + 6].copy_from_slice(&7_u16.to_be_bytes());
        bytes[HEADER + 6..HEADER + 8].copy_from_slice(&8_u16.to_be_bytes());
        bytes[HEADER + ANSWER - 4..].copy_from_slice(&99_u32.to_ne_bytes());
        assert_eq!(answer(&bytes, 5, asked), DiagAnswer::Inode(99));
        assert_eq!(answer(&bytes, 6, asked), DiagAnswer::Stale);
        assert_eq!(answer(&bytes, 5, Connection { local: end(9), ..asked }), DiagAnswer::Nothing);
        for length in 0..bytes.len() {
            let cut = answer(&bytes[..length], 5, asked);
            assert!(matches!(cut, DiagAnswer::Failed(_)), "{length}: {cut:?}");
        }
        let mut error = bytes[..HEADER].to_vec();
        error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        error.extend((-2_i32).to_ne_bytes());
        assert_eq!(answer(&error, 5, asked), DiagAnswer::Nothing);
        error[HEADER..].copy_from_slice(&(-13_i32).to_ne_bytes());
        assert_eq!(answer(&error, 5, asked), DiagAnswer::Failed(Errno::ACCESS));
    }
}
