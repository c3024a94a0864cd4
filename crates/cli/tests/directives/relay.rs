//! A plain TCP balancer: each new connection goes to the next server that takes it. A bad network: connections are refused, cut in
//! the middle of an answer, and slow.

use std::io::{Read, Write, copy};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Relay {
    address: SocketAddr,
    servers: Arc<Mutex<Servers>>,
}

#[derive(Default)]
struct Servers {
    all: Vec<SocketAddr>,
    /// Connections of each.
    counts: Vec<usize>,
    next: usize,
}

impl Relay {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, servers) = (listener.local_addr().unwrap(), Arc::<Mutex<Servers>>::default());
        let for_all = Arc::clone(&servers);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if let Some(server) = connect(&for_all) {
                    carry(client, server);
                }
            }
        });
        Self { address, servers }
    }

    pub fn add(&self, server: SocketAddr) {
        let mut servers = self.servers.lock().unwrap();
        servers.all.push(server);
        servers.counts.push(0);
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> Vec<usize> {
        self.servers.lock().unwrap().counts.clone()
    }
}

fn connect(servers: &Mutex<Servers>) -> Option<TcpStream> {
    let mut servers = servers.lock().unwrap();
    for _ in 0..servers.all.len() {
        let place = servers.next % servers.all.len();
        servers.next += 1;
        if let Ok(server) = TcpStream::connect(servers.all[place]) {
            servers.counts[place] += 1;
            return Some(server);
        }
    }
    None
}

pub(super) fn carry(client: TcpStream, server: TcpStream) {
    let (from_client, to_client) = (client.try_clone().unwrap(), client);
    let (from_server, to_server) = (server.try_clone().unwrap(), server);
    for (mut from, mut to) in [(from_client, to_server), (from_server, to_client)] {
        std::thread::spawn(move || {
            // A side that ended or broke ends the other one.
            copy(&mut from, &mut to).ok();
            to.shutdown(Shutdown::Both).ok();
            from.shutdown(Shutdown::Both).ok();
        });
    }
}

/// Bytes that a bad network carries in a second, in each direction.
const BAD_BYTES_PER_SECOND: u64 = 256 << 10;

/// Counts of faults that a bad network made.
#[derive(Debug, Default)]
pub struct BadCounts {
    /// Connections that led nowhere.
    pub refused: AtomicUsize,
    /// Connections that were cut after a part of what the server sent.
    pub cut: AtomicUsize,
    /// Pieces that came late.
    pub late: AtomicUsize,
}

/// A bad network before an address. Of each eight connections one is refused, and two are cut; every piece waits for the wire, and some
/// wait longer. The seed decides.
pub struct BadNetwork {
    address: SocketAddr,
    pub counts: Arc<BadCounts>,
}

impl BadNetwork {
    /// Listens at an address of this machine.
    pub fn start(listen: IpAddr, target: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let (address, counts) = (listener.local_addr().unwrap(), Arc::<BadCounts>::default());
        let for_all = Arc::clone(&counts);
        std::thread::spawn(move || {
            let mut random = Random(seed | 1);
            for (number, client) in listener.incoming().flatten().enumerate() {
                // The first connections are those of the enrolment, which is a person's and is repeated by that person.
                if number >= 2 && number % 8 == 3 {
                    for_all.refused.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let Ok(server) = TcpStream::connect(target) else { continue };
                // A handshake is about 2,500 bytes: some are cut in it, most in an answer after it.
                let most = (number >= 2 && number % 4 == 1).then(|| 1500 + random.below(8000));
                let (from_client, to_client) = (client.try_clone().unwrap(), client);
                let (from_server, to_server) = (server.try_clone().unwrap(), server);
                for (from, to, most) in [(from_client, to_server, None), (from_server, to_client, most)] {
                    let (counts, random) = (Arc::clone(&for_all), Random(random.next() | 1));
                    std::thread::spawn(move || slow_copy(from, to, most, random, &counts));
                }
            }
        });
        Self { address, counts }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn slow_copy(mut from: TcpStream, mut to: TcpStream, most: Option<u64>, mut random: Random, counts: &BadCounts) {
    let (mut buffer, mut carried) = ([0; 4096], 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut wait = Duration::from_micros(count as u64 * 1_000_000 / BAD_BYTES_PER_SECOND);
        if random.below(20) == 0 {
            counts.late.fetch_add(1, Ordering::SeqCst);
            wait += Duration::from_millis(50 + random.below(400));
        }
        std::thread::sleep(wait);
        carried += count as u64;
        if most.is_some_and(|most| carried > most) {
            counts.cut.fetch_add(1, Ordering::SeqCst);
            break;
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
    from.shutdown(Shutdown::Both).ok();
}

/// Numbers that follow from a seed (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
