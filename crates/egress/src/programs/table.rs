//! The kernel's tables of TCP sockets, `/proc/PID/net/tcp` and `tcp6` (proc_pid_net(5)).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The inodes of the sockets with this local address in the table of IPv4 (`tcp`) or IPv6 (`tcp6`) sockets. There can be
/// several: one local address may be connected to many others. Sockets that no process holds have none.
pub fn inodes(table: &str, local: SocketAddr) -> impl Iterator<Item = u64> {
    let spellings = [spelling_v4(local), Some(spelling_v6(local))];
    table.lines().filter_map(move |line| {
        // number, local, remote, state, queues, timer, retransmissions, uid, time-out, inode
        let mut fields = line.split_ascii_whitespace().skip(1);
        let address = fields.next()?;
        let ours = spellings.iter().flatten().any(|spelling| spelling == address);
        ours.then(|| fields.nth(7)).flatten()?.parse::<u64>().ok().filter(|inode| *inode != 0)
    })
}

/// As the kernel prints it: the bytes of the address read as a number of this machine.
fn spelling_v4(address: SocketAddr) -> Option<String> {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => Some(format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port())),
        IpAddr::V6(_) => None,
    }
}

/// An IPv6 socket that talks IPv4 has the mapped form.
fn spelling_v6(address: SocketAddr) -> String {
    let ip: Ipv6Addr = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let words = ip.octets();
    let words = words.as_chunks::<4>().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
    format!("{}:{:04X}", words.collect::<String>(), address.port())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test is its own client")]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    fn own(file: &str) -> String {
        std::fs::read_to_string(format!("/proc/self/net/{file}")).unwrap()
    }

    fn inode(stream: &TcpStream) -> u64 {
        use std::os::fd::AsRawFd;
        std::fs::metadata(format!("/proc/self/fd/{}", stream.as_raw_fd())).unwrap().ino()
    }

    #[test]
    fn the_kernels_own_lines_are_found_by_their_local_address() {
        for (listen, file) in [("127.0.0.1:0", "tcp"), ("[::1]:0", "tcp6")] {
            let listener = TcpListener::bind(listen).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, peer) = listener.accept().unwrap();
            assert_eq!(inodes(&own(file), peer).collect::<Vec<_>>(), [inode(&client)], "{listen}");
            let at_server = inodes(&own(file), server.local_addr().unwrap()).collect::<Vec<_>>();
            assert!(at_server.contains(&inode(&server)) && !at_server.contains(&inode(&client)), "{listen}");
        }
    }

    #[test]
    fn an_ipv6_socket_that_talks_ipv4_is_found_by_the_address_that_its_server_sees() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(SocketAddr::from((std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port)));
        let (_server, peer) = listener.accept().unwrap();
        assert!(peer.is_ipv4());
        assert_eq!(inodes(&own("tcp6"), peer).collect::<Vec<_>>(), [inode(&client.unwrap())]);
    }

    #[test]
    fn sockets_without_a_holder_and_lines_of_another_form_are_none() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0x1F90));
        let local = spelling_v4(address).unwrap();
        let line = |inode: &str| format!("   0: {local} 00000000:0000 06 0:0 0:0 0 1000 0 {inode} 1\n");
        assert_eq!(inodes(&line("77"), address).collect::<Vec<_>>(), [77]);
        for other in [line("0"), line("x"), format!("0: {local}"), String::new(), local.clone()] {
            assert_eq!(inodes(&other, address).count(), 0, "{other}");
        }
    }
}
