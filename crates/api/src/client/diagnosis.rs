//! One socket of this machine, by the kernel's answer to a question about it alone (sock_diag(7)). The text table of all sockets
//! costs milliseconds on a machine with much memory, however few sockets there are.

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recvfrom, sendto, socket_with};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY`, the message of a question and of its answer.
const BY_FAMILY: u16 = 20;
/// Kind of the message that refuses a question (`NLMSG_ERROR`).
const ERROR: u16 = 2;
/// Flag of a question (`NLM_F_REQUEST`).
const REQUEST: u16 = 1;
/// Number of the protocol (`IPPROTO_TCP`).
const TCP: u8 = 6;
/// State of a socket that waits for connections (`TCP_LISTEN`).
const LISTENS: u8 = 10;
/// Bytes of a message's head, and of the structures of the question and of the answer (linux/inet_diag.h).
const HEAD: usize = 16;
const QUESTION: usize = HEAD + 56;
const ANSWER: usize = HEAD + 72;
/// Names of one message, by which its answer is known.
const SEQUENCE: u32 = 1;

/// A socket as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// Owner of the socket.
    pub uid: u32,
    /// Number of the file that holds it; 0 when no process does.
    pub inode: u32,
}

/// Returns the TCP socket at `local` whose other end is `remote`; `None` when there is none. An error says nothing about it.
pub fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Socket>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &question(local, remote), SendFlags::empty(), &kernel)?;
    let mut buffer = [0; 4096];
    // The kernel has answered when the call that asks returns.
    let (length, _, from) = recvfrom(&socket, &mut buffer, RecvFlags::empty())?;
    let from: SocketAddrNetlink = from.ok_or(Errno::BADMSG)?.try_into()?;
    if from.pid() != 0 {
        return Err(Errno::BADMSG.into());
    }
    read(buffer.get(..length).unwrap_or_default(), local, remote)
}

/// Returns address and port as both structures have them.
fn end(address: SocketAddr) -> ([u8; 16], [u8; 2]) {
    let mut bytes = [0; 16];
    match address.ip() {
        IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes.copy_from_slice(&ip.octets()),
    }
    (bytes, address.port().to_be_bytes())
}

fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let ((source, source_port), (destination, destination_port)) = (end(local), end(remote));
    let mut message = Vec::with_capacity(QUESTION);
    message.extend((QUESTION as u32).to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend(SEQUENCE.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    // inet_diag_req_v2: family, protocol, extensions, padding, states, then the id of the socket.
    message.extend([family.as_raw() as u8, TCP, 0, 0]);
    message.extend(u32::MAX.to_ne_bytes());
    message.extend(source_port);
    message.extend(destination_port);
    message.extend(source);
    message.extend(destination);
    // Any device, and no cookie.
    message.extend(0u32.to_ne_bytes());
    message.extend([0xff; 8]);
    message
}

fn read(message: &[u8], local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Socket>> {
    let bad = || io::Error::from(Errno::BADMSG);
    let word = |at: usize| -> io::Result<u32> {
        Ok(u32::from_ne_bytes(message.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(bad)?))
    };
    if word(8)? != SEQUENCE {
        return Err(bad());
    }
    match u16::from_ne_bytes([message[4], message[5]]) {
        ERROR => match Errno::from_raw_os_error(word(HEAD)?.cast_signed().wrapping_neg()) {
            Errno::NOENT => Ok(None),
            error => Err(error.into()),
        },
        BY_FAMILY if message.len() >= ANSWER => {
            let (state, is_v6) = (message[HEAD + 1], message[HEAD] == AddressFamily::INET6.as_raw() as u8);
            let at = HEAD + 4;
            let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            let address = |at: usize| -> io::Result<IpAddr> {
                let bytes: [u8; 16] = message[at..at + 16].try_into().map_err(|_| bad())?;
                let [a, b, c, d, ..] = bytes;
                Ok(if is_v6 { Ipv6Addr::from(bytes).to_canonical() } else { IpAddr::from([a, b, c, d]) })
            };
            let ends = [(address(at + 4)?, port(at)), (address(at + 20)?, port(at + 2))];
            // Where there is no such connection the kernel names the socket that listens there.
            let is_it = state != LISTENS && ends == [local, remote].map(|end| (end.ip().to_canonical(), end.port()));
            Ok(if is_it { Some(Socket { uid: word(HEAD + 64)?, inode: word(HEAD + 68)? }) } else { None })
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_answers_about_one_connection_and_not_about_its_listener() {
        for listen in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if listen == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let client = TcpStream::connect((host, port)).unwrap();
            let (ours, theirs) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            // Neither the user nor a file is known before a process accepts.
            assert_eq!(find(theirs, ours).unwrap().map(|socket| socket.inode), Some(0), "{listen}");
            let (_server, _) = listener.accept().unwrap();
            let found = find(theirs, ours).unwrap().unwrap();
            assert_eq!(found.uid, rustix::process::geteuid().as_raw(), "{listen}");
            assert_ne!(found.inode, 0, "{listen}");
            // The kernel has no such connection, and names the listener.
            let mut other = ours;
            other.set_port(1);
            assert_eq!(find(theirs, other).unwrap(), None, "{listen}");
        }
        let closed = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(find(closed, closed).unwrap(), None);
    }

    #[test]
    fn a_damaged_answer_is_an_error() {
        let (local, remote) = (SocketAddr::from(([127, 0, 0, 1], 4780)), SocketAddr::from(([127, 0, 0, 1], 40_000)));
        let mut whole = question(local, remote);
        whole.resize(ANSWER, 0);
        for length in 0..ANSWER {
            assert!(read(&whole[..length], local, remote).is_err(), "{length}");
        }
        whole[8] = 7;
        assert!(read(&whole, local, remote).is_err(), "an answer to another question");
    }
}
