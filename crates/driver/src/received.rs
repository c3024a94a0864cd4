//! Checks on each descriptor from the guest before the host touches it.
//!
//! A guest in hostile hands could send a pipe, a socket or a file of its own in the place of the one that was asked
//! for. None of them is the host's, but a read from one that blocks would stop the thread that serves
//! this sandbox.

use nexus_channel::frames::LISTENERS;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, OFlags};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::net::SocketAddr;

/// The master of any pseudo-terminal has the device number of `/dev/ptmx` (pts(4)).
const PTMX: (u32, u32) = (5, 2);

/// Listening sockets inside the sandbox's network. Closing them refuses every connection from then on.
#[derive(Debug)]
pub struct Listeners {
    /// Listener of the HTTP proxy.
    pub http: OwnedFd,
    /// Listener of the SOCKS proxy.
    pub socks: OwnedFd,
    /// Name service over UDP.
    pub dns_udp: OwnedFd,
    /// Name service over TCP.
    pub dns_tcp: OwnedFd,
    /// Every other connection; SO_ORIGINAL_DST tells where it was meant to go.
    pub transparent: OwnedFd,
    /// The same for IPv6, where the sandbox has it.
    pub transparent_ipv6: Option<OwnedFd>,
    /// Listeners that stand for ports of the host's loopback, each with its port.
    pub host_ports: Vec<(u16, OwnedFd)>,
    /// View of the sandbox's processes, where the plan lets the host know them.
    pub processes: Option<ProcessView>,
}

/// Descriptors by which the host knows the processes of a sandbox and their sockets.
#[derive(Debug)]
pub struct ProcessView {
    /// A `/proc` of its own, opened as a path.
    pub proc: OwnedFd,
    /// A `NETLINK_SOCK_DIAG` socket of its network.
    pub sockets: OwnedFd,
}

/// The descriptor that came with a frame; the outer `None` is for too many.
#[allow(clippy::option_option, reason = "the outer one is the verdict, the inner one what came")]
pub fn at_most_one(mut descriptors: Vec<OwnedFd>) -> Option<Option<OwnedFd>> {
    let last = descriptors.pop();
    descriptors.is_empty().then_some(last)
}

/// A terminal's master, made non-blocking.
pub fn master(fd: OwnedFd) -> Option<OwnedFd> {
    let stat = rustix::fs::fstat(&fd).ok()?;
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let is_master = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && device == PTMX;
    if is_master { non_blocking(fd) } else { None }
}

/// A TCP socket, made non-blocking.
pub fn tcp_socket(fd: OwnedFd) -> Option<OwnedFd> {
    let family = sockopt::socket_domain(&fd).ok()?;
    let is_stream = sockopt::socket_type(&fd).ok()? == SocketType::STREAM;
    let is_tcp = is_stream && (family == AddressFamily::INET || family == AddressFamily::INET6);
    if is_tcp { non_blocking(fd) } else { None }
}

/// Descriptors of the egress without IPv6, and with it.
const BASE: [usize; 2] = [LISTENERS - 1, LISTENERS];

/// The listeners of the egress, in the order of the frame; before them the view of the processes, where it was asked for,
/// and the listeners of these host ports.
pub fn listeners(descriptors: Vec<OwnedFd>, by_program: bool, ports: &[u16]) -> Option<Listeners> {
    let rest = descriptors.len().checked_sub(if by_program { 2 } else { 0 })?;
    let mut numbers = (1..).zip(BASE).map(|(each, base)| (each * ports.len(), base));
    let (for_ports, _) = numbers.find(|(for_ports, base)| for_ports + base == rest)?;
    let mut all = descriptors.into_iter();
    let mut view = || Some(ProcessView { proc: process_directory(all.next()?)?, sockets: diagnosis(all.next()?)? });
    let processes = if by_program { Some(view()?) } else { None };
    let host_ports = all.by_ref().take(for_ports).map(|fd| host_port(fd, ports)).collect::<Option<_>>()?;
    let listeners = Listeners {
        processes,
        host_ports,
        http: listening(all.next()?)?,
        socks: listening(all.next()?)?,
        dns_udp: datagram(all.next()?)?,
        dns_tcp: listening(all.next()?)?,
        transparent: listening(all.next()?)?,
        transparent_ipv6: match all.next() {
            None => None,
            Some(fd) => Some(listening(fd)?),
        },
    };
    all.next().is_none().then_some(listeners)
}

/// A listener on the loopback, with its port, which is one of these.
fn host_port(fd: OwnedFd, ports: &[u16]) -> Option<(u16, OwnedFd)> {
    let fd = listening(fd)?;
    let address = SocketAddr::try_from(rustix::net::getsockname(&fd).ok()?).ok()?;
    (address.ip().is_loopback() && ports.contains(&address.port())).then(|| (address.port(), fd))
}

/// The root of a `/proc` that is another than this process's.
fn process_directory(fd: OwnedFd) -> Option<OwnedFd> {
    let is_proc = rustix::fs::fstatfs(&fd).ok()?.f_type == rustix::fs::PROC_SUPER_MAGIC;
    let (given, own) = (rustix::fs::fstat(&fd).ok()?, rustix::fs::stat("/proc").ok()?);
    let is_root = FileType::from_raw_mode(given.st_mode) == FileType::Directory && given.st_ino == own.st_ino;
    (is_proc && is_root && given.st_dev != own.st_dev).then_some(fd)
}

/// A socket that asks about sockets, which waits for its answer.
fn diagnosis(fd: OwnedFd) -> Option<OwnedFd> {
    let is_diagnosis = sockopt::socket_domain(&fd).ok()? == AddressFamily::NETLINK
        && sockopt::socket_protocol(&fd).ok()? == Some(rustix::net::netlink::SOCK_DIAG);
    let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
    rustix::fs::fcntl_setfl(&fd, flags - OFlags::NONBLOCK).ok()?;
    is_diagnosis.then_some(fd)
}

fn listening(fd: OwnedFd) -> Option<OwnedFd> {
    let fd = tcp_socket(fd)?;
    sockopt::socket_acceptconn(&fd).ok()?.then_some(fd)
}

/// A UDP socket, made non-blocking.
pub fn datagram(fd: OwnedFd) -> Option<OwnedFd> {
    let is_udp = sockopt::socket_type(&fd).ok()? == SocketType::DGRAM
        && sockopt::socket_domain(&fd).ok()? == AddressFamily::INET;
    if is_udp { non_blocking(fd) } else { None }
}

fn non_blocking(fd: OwnedFd) -> Option<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(&fd).ok()?;
    rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK).ok()?;
    Some(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;

    #[test]
    fn only_a_master_is_taken_as_a_master() {
        let ptmx = File::options().read(true).write(true).open("/dev/ptmx").unwrap();
        let taken = master(ptmx.into()).unwrap();
        assert!(rustix::fs::fcntl_getfl(&taken).unwrap().contains(OFlags::NONBLOCK));
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(master(read).is_none());
        assert!(master(File::open("/dev/null").unwrap().into()).is_none());
    }

    #[test]
    fn only_a_tcp_socket_is_taken_as_one() {
        let socket = |family, kind| rustix::net::socket(family, kind, None).unwrap();
        assert!(tcp_socket(socket(AddressFamily::INET, SocketType::STREAM)).is_some());
        assert!(tcp_socket(socket(AddressFamily::INET, SocketType::DGRAM)).is_none());
        assert!(tcp_socket(socket(AddressFamily::UNIX, SocketType::STREAM)).is_none());
        assert!(tcp_socket(File::open("/dev/null").unwrap().into()).is_none());
    }

    #[test]
    fn more_than_one_descriptor_is_too_many() {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        assert!(matches!(at_most_one(Vec::new()), Some(None)));
        assert!(at_most_one(vec![null()]).flatten().is_some_and(|fd| fd.as_fd().try_clone_to_owned().is_ok()));
        assert!(at_most_one(vec![null(), null()]).is_none());
    }

    #[test]
    fn listeners_are_taken_only_in_their_order_and_only_listening() {
        let stream = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let datagram = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let without_ipv6 = || vec![stream(), stream(), datagram(), stream(), stream()];
        assert!(listeners(without_ipv6(), false, &[]).unwrap().transparent_ipv6.is_none());
        let mut with_ipv6 = without_ipv6();
        with_ipv6.push(stream());
        assert!(listeners(with_ipv6, false, &[]).unwrap().transparent_ipv6.is_some());
        assert!(listeners(vec![stream(), stream(), stream(), stream(), stream()], false, &[]).is_none());
        assert!(listeners(vec![stream(), stream(), datagram(), stream()], false, &[]).is_none());
        let mut deaf = without_ipv6();
        deaf[0] = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert!(listeners(deaf, false, &[]).is_none());
        let mut too_many = without_ipv6();
        too_many.extend([stream(), stream()]);
        assert!(listeners(too_many, false, &[]).is_none());
    }

    #[test]
    fn a_listener_of_a_host_port_is_taken_for_its_port_alone() {
        let stream = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        let datagram = || OwnedFd::from(std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = |fd: &OwnedFd| SocketAddr::try_from(rustix::net::getsockname(fd).unwrap()).unwrap().port();
        let behind = |mut first: Vec<OwnedFd>| {
            first.extend([stream(), stream(), datagram(), stream(), stream()]);
            first
        };
        let (one, other) = (stream(), stream());
        let ports = [port(&one), port(&other)];
        let both = listeners(behind(vec![one, other]), false, &ports).unwrap();
        let taken: Vec<_> = both.host_ports.iter().map(|(number, fd)| (*number, port(fd))).collect();
        assert_eq!(taken, ports.map(|port| (port, port)));
        assert!(listeners(behind(vec![stream()]), false, &[1]).is_none(), "another port");
        let everywhere = OwnedFd::from(std::net::TcpListener::bind("0.0.0.0:0").unwrap());
        let number = port(&everywhere);
        assert!(listeners(behind(vec![everywhere]), false, &[number]).is_none(), "another address");
        assert!(listeners(behind(vec![stream()]), false, &[]).is_none_or(|taken| taken.host_ports.is_empty()));
        assert!(listeners(behind(Vec::new()), false, &[1]).is_none(), "one is missing");
    }
}
