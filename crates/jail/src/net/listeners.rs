//! The sockets on which the sandbox meets the egress, made inside and served outside.
//!
//! They are made before the command exists and the set-up's own copies are closed, so nothing inside can accept on
//! them. Connections wait in the kernel's queue until the host serves them: starting the egress a moment later loses
//! nothing.

use nexus_model::network::{DNS_PORT, HTTP_PORT, SOCKS_PORT, TRANSPARENT_PORT};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Connections that may wait to be accepted; the kernel's own limit (net.core.somaxconn) may be lower.
const BACKLOG: i32 = 4096;

/// A listener could not be made.
#[derive(Debug)]
pub struct MakeError {
    /// Listener that could not be made.
    pub what: &'static str,
    /// Error of the system call.
    pub source: io::Error,
}

/// The socket by which the host asks which process holds a connection inside (sock_diag(7)).
pub fn diagnosis() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
    Ok(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(rustix::net::netlink::SOCK_DIAG))?)
}

/// Makes the socket at which a sandbox without an egress is answered that no name exists.
pub fn name_socket() -> io::Result<OwnedFd> {
    bound(SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT)), SocketType::DGRAM)
}

/// Makes them, in the order in which `GuestFrame::Listeners` carries them. The last is there only with IPv6.
pub fn make() -> Result<Vec<OwnedFd>, MakeError> {
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut all = vec![
        stream(local(HTTP_PORT)).map_err(|source| MakeError { what: "HTTP proxy", source })?,
        stream(local(SOCKS_PORT)).map_err(|source| MakeError { what: "SOCKS proxy", source })?,
        bound(local(DNS_PORT), SocketType::DGRAM).map_err(|source| MakeError { what: "DNS", source })?,
        stream(local(DNS_PORT)).map_err(|source| MakeError { what: "DNS over TCP", source })?,
        stream(local(TRANSPARENT_PORT)).map_err(|source| MakeError { what: "transparent", source })?,
    ];
    let ipv6 = SocketAddr::from(SocketAddrV6::new(Ipv6Addr::LOCALHOST, TRANSPARENT_PORT, 0, 0));
    match stream(ipv6) {
        Ok(listener) => all.push(listener),
        // Without the protocol, or with it switched off for new namespaces, no address of it can be reached either.
        Err(error) if no_ipv6(&error) => {}
        Err(source) => return Err(MakeError { what: "transparent (IPv6)", source }),
    }
    Ok(all)
}

/// Makes a listener on 127.0.0.1 for each host port, and with `ipv6` one on `::1`. The host connects what comes there to its
/// own loopback.
pub fn make_host_ports(ports: &[u16], ipv6: bool) -> io::Result<Vec<OwnedFd>> {
    let both = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
    let addresses = ports.iter().flat_map(|port| {
        both.into_iter().take(1 + usize::from(ipv6)).map(move |address| SocketAddr::new(address.ip(), *port))
    });
    addresses.map(stream).collect()
}

fn no_ipv6(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

fn stream(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = bound(address, SocketType::STREAM)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Binds a socket that does not block: the thread that serves it waits for many at once.
fn bound(address: SocketAddr, kind: SocketType) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, kind, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}
