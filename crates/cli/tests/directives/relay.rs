//! A plain TCP balancer: each new connection goes to the next server that takes it.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

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

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
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

fn carry(client: TcpStream, server: TcpStream) {
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
