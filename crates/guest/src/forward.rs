//! A connection to a server inside, for the host.
//!
//! A socket belongs to the network namespace in which it was made, so one that is made here and handed out reaches the
//! sandbox's loopback and nothing else, in whatever process it ends up. The guest never waits: a connect over loopback is decided
//! by the kernel at once, and one that is not (a full accept queue) is handed over while it is still connecting.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Connects to this port of 127.0.0.1, or of `::1` when no server listens on 127.0.0.1.
pub fn connect(port: u16) -> Result<OwnedFd, Errno> {
    match connect_to(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)) {
        // Without IPv6 the first answer is the true one.
        Err(Errno::CONNREFUSED) => {
            connect_to(SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port)).map_err(|_| Errno::CONNREFUSED)
        }
        other => other,
    }
}

fn connect_to(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let mut wait = [PollFd::new(&socket, PollFlags::OUT)];
    let decided = match poll(&mut wait, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        Err(error) => return Err(error),
    };
    // Reading SO_ERROR takes it away, so only a decided socket is asked.
    if decided {
        rustix::net::sockopt::socket_error(&socket)??;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_server_on_either_loopback_is_reached_and_a_closed_port_is_refused() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = TcpListener::bind(address) else {
                assert!(address.starts_with('['), "no IPv4 loopback");
                continue;
            };
            let port = server.local_addr().unwrap().port();
            let socket = connect(port).unwrap();
            assert_eq!(server.accept().unwrap().1.port(), local_port(&socket), "{address}");
            drop(server);
            assert_eq!(connect(port).unwrap_err(), Errno::CONNREFUSED);
        }
    }

    fn local_port(socket: &OwnedFd) -> u16 {
        let address = rustix::net::getsockname(socket).unwrap();
        SocketAddr::try_from(address).unwrap().port()
    }

    #[test]
    fn a_server_that_accepts_nothing_does_not_hold_us_up() {
        let server = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&server, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        rustix::net::listen(&server, 0).unwrap();
        let port = local_port(&server);
        // Waiting would take the kernel's minutes of SYN retries for each beyond the queue.
        let began = std::time::Instant::now();
        let sockets: Vec<_> = (0..8).map(|_| connect(port).unwrap()).collect();
        assert_eq!(sockets.len(), 8);
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
    }
}
