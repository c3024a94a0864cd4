//! The owner of the other end of a connection over loopback: a key goes only to a process of the own user or of root.
//!
//! Any user may listen on a port that the server does not hold at the moment. The kernel names the user who accepted a connection,
//! and that user does not change while the connection lives: the answer holds for every byte that follows. A kernel that answers no
//! question about one socket shows the table of all.

use super::diagnosis;
use super::plain::{PlainHttp, is_loopback};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Time that the server has to accept a connection.
const ACCEPT_TIME: Duration = Duration::from_secs(4);
/// Longest pause between two looks.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// A server that waits for connections accepts one sooner than a timer of the runtime can say.
const SHORT_PAUSES: u32 = 20;
const SHORT_PAUSE: Duration = Duration::from_micros(50);

/// State of the other end in the table of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// It is not in the table: another network namespace or a translated address.
    Nothing,
    /// No process has accepted the connection yet.
    Waiting,
    /// A process of this user accepted it.
    Accepted(u32),
}

/// Returns why nothing may be sent over this connection, which has no TLS.
pub async fn check(stream: &TcpStream, plain: PlainHttp) -> Result<(), String> {
    let PlainHttp::Loopback { also } = plain else { return Ok(()) };
    let (Ok(ours), Ok(theirs)) = (stream.local_addr(), stream.peer_addr()) else {
        return Err("the connection ended at once".to_owned());
    };
    if !is_loopback(theirs.ip()) {
        return Err(format!("{} is not an address on loopback", theirs.ip()));
    }
    let own = rustix::process::geteuid().as_raw();
    let begin = Instant::now();
    let mut looks = 0;
    let mut pause = Duration::from_millis(1);
    loop {
        let seen = inspect(ours, theirs).map_err(|error| format!("the table of sockets cannot be read: {error}"))?;
        match seen {
            Seen::Accepted(owner) => return trusted(owner, own, also),
            Seen::Waiting if begin.elapsed() > ACCEPT_TIME => {
                return Err("no process accepted the connection".to_owned());
            }
            Seen::Nothing if begin.elapsed() > ACCEPT_TIME => {
                return Err("the process that accepted the connection cannot be seen".to_owned());
            }
            Seen::Waiting | Seen::Nothing => {}
        }
        looks += 1;
        if looks <= SHORT_PAUSES {
            std::thread::sleep(SHORT_PAUSE);
            tokio::task::yield_now().await;
            continue;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

fn trusted(owner: u32, own: u32, also: Option<u32>) -> Result<(), String> {
    if owner == own || owner == 0 || also == Some(owner) {
        return Ok(());
    }
    Err(format!("a process of the user {owner} answers there, not one of yours or of root"))
}

fn inspect(ours: SocketAddr, theirs: SocketAddr) -> std::io::Result<Seen> {
    match diagnosis::find(theirs, ours) {
        Ok(Some(diagnosis::Socket { inode: 0, .. })) => Ok(Seen::Waiting),
        Ok(Some(diagnosis::Socket { uid, .. })) => Ok(Seen::Accepted(uid)),
        Ok(None) | Err(_) => inspect_table(ours, theirs),
    }
}

fn inspect_table(ours: SocketAddr, theirs: SocketAddr) -> std::io::Result<Seen> {
    let mut seen = find(&std::fs::read_to_string("/proc/self/net/tcp")?, ours, theirs);
    if seen == Seen::Nothing {
        // A server that listens on all addresses of both families stands in the table of IPv6. Kernels without IPv6 have none.
        match std::fs::read_to_string("/proc/self/net/tcp6") {
            Ok(table) => seen = find(&table, ours, theirs),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

/// Finds the socket at `theirs` whose other end is `ours`.
fn find(table: &str, ours: SocketAddr, theirs: SocketAddr) -> Seen {
    let (ours, theirs) = (plain_end(ours), plain_end(theirs));
    let found = table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
        let [_, local, remote, .., uid, _, inode] = fields[..] else { return None };
        let is_it = end(local) == Some(theirs) && end(remote) == Some(ours);
        is_it.then(|| (uid.parse().ok(), inode))
    });
    match found {
        // Older kernels call the owner of such a socket root.
        Some((_, "0")) => Seen::Waiting,
        Some((Some(uid), _)) => Seen::Accepted(uid),
        None | Some((None, _)) => Seen::Nothing,
    }
}

fn plain_end(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// Reads `0100007F:12AC`: the address in words of 32 bits as the machine holds them, and the port.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let address = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let mut bytes = [0; 16];
            for (number, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(number * 8)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((address.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream as StdStream};

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    #[test]
    fn a_key_goes_to_the_own_user_to_root_and_to_the_named_user_alone() {
        for (owner, also, is_trusted) in [
            (1000, None, true),
            (0, None, true),
            (1001, None, false),
            (1001, Some(1001), true),
            (1002, Some(1001), false),
        ] {
            assert_eq!(trusted(owner, 1000, also).is_ok(), is_trusted, "{owner} {also:?}");
        }
        assert!(trusted(1000, 0, None).is_err(), "root's key is not for a user");
    }

    #[test]
    fn the_owner_of_the_accepted_socket_counts_and_not_that_of_another_one() {
        let (ours, theirs) = ("127.0.0.1:40000".parse().unwrap(), "127.0.0.1:4780".parse().unwrap());
        let line = |local: &str, remote: &str, uid: u32, inode: u32| {
            format!("   7: {local} {remote} 01 00000000:00000000 00:00000000 00000000 {uid:>5}        0 {inode} 1 0\n")
        };
        let hex = |text: &str| {
            let at: SocketAddr = text.parse().unwrap();
            let word = |bytes: &[u8]| format!("{:08X}", u32::from_ne_bytes(bytes.try_into().unwrap()));
            match at.ip() {
                IpAddr::V4(ip) => format!("{}:{:04X}", word(&ip.octets()), at.port()),
                IpAddr::V6(ip) => {
                    format!("{}:{:04X}", ip.octets().chunks(4).map(word).collect::<String>(), at.port())
                }
            }
        };
        let (client, server) = (hex("127.0.0.1:40000"), hex("127.0.0.1:4780"));
        let listens = line(&server, &hex("0.0.0.0:0"), 0, 5);
        let own = line(&client, &server, 1000, 6);
        let other = line(&server, &hex("127.0.0.1:40001"), 1000, 7);
        let accepted = line(&server, &client, 30016, 8);
        let table = [HEAD, &listens, &own, &other].concat();
        assert_eq!(find(&table, ours, theirs), Seen::Nothing);
        assert_eq!(find(&(table.clone() + &accepted), ours, theirs), Seen::Accepted(30016));
        assert_eq!(
            find(&(table + &line(&server, &client, 0, 0)), ours, theirs),
            Seen::Waiting,
            "nobody has accepted it"
        );
        let mapped =
            [HEAD, &line(&hex("[::ffff:127.0.0.1]:4780"), &hex("[::ffff:127.0.0.1]:40000"), 30016, 9)].concat();
        assert_eq!(find(&mapped, ours, theirs), Seen::Accepted(30016));
        let (ours, theirs) = ("[::1]:40000".parse().unwrap(), "[::1]:4780".parse().unwrap());
        let six = [HEAD, &line(&hex("[::1]:4780"), &hex("[::1]:40000"), 30016, 9)].concat();
        assert_eq!(find(&six, ours, theirs), Seen::Accepted(30016));
        for wrong in ["", HEAD, "x\n1 2 3", "x\n1: zz:1 yy:2 3 4 5 6 7 8 9"] {
            assert_eq!(find(wrong, ours, theirs), Seen::Nothing, "{wrong}");
        }
    }

    #[test]
    fn the_kernel_shows_a_connection_as_waiting_until_it_is_accepted() {
        for listen in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if listen == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let client = StdStream::connect((host, port)).unwrap();
            let (ours, theirs) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            for inspect in [inspect, inspect_table] {
                assert_eq!(inspect(ours, theirs).unwrap(), Seen::Waiting, "{listen}");
            }
            let (_server, _) = listener.accept().unwrap();
            let own = Seen::Accepted(rustix::process::geteuid().as_raw());
            for inspect in [inspect, inspect_table] {
                assert_eq!(inspect(ours, theirs).unwrap(), own, "{listen}");
            }
        }
    }
}
