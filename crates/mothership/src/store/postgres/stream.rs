//! The connection below the messages: a socket of this machine, TCP, or TLS over TCP.

use super::database::{Database, Host};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);

pub enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub fn open(database: &Database) -> io::Result<Self> {
        match &database.host {
            Host::Socket(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
            Host::Name(name) => {
                let tcp = tcp(name, database.port)?;
                let Some(tls) = &database.tls else { return Ok(Self::Tcp(tcp)) };
                ask_for_tls(&tcp)?;
                let name = name.clone().try_into().map_err(io::Error::other)?;
                let session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
                Ok(Self::Tls(Box::new(StreamOwned::new(session, tcp))))
            }
        }
    }

    /// Bounds the time of each read and write.
    pub fn limit(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.set_read_timeout(Some(time)).and(socket.set_write_timeout(Some(time))),
            Self::Tcp(socket) => socket.set_read_timeout(Some(time)).and(socket.set_write_timeout(Some(time))),
            Self::Tls(tls) => tls.sock.set_read_timeout(Some(time)).and(tls.sock.set_write_timeout(Some(time))),
        }
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.write_all(bytes),
            Self::Tcp(socket) => socket.write_all(bytes),
            Self::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        }
    }

    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => socket.read(into),
            Self::Tcp(socket) => socket.read(into),
            Self::Tls(tls) => tls.read(into),
        }
    }
}

fn tcp(name: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Asks the server to go on with TLS. A server that declines gets nothing.
fn ask_for_tls(mut tcp: &TcpStream) -> io::Result<()> {
    tcp.set_read_timeout(Some(CONNECT))?;
    tcp.write_all(&[0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f])?;
    // One byte: what came with it in clear would be taken for the server's.
    let mut answer = [0];
    tcp.read_exact(&mut answer)?;
    if answer == *b"S" { Ok(()) } else { Err(io::Error::other("the server has no TLS")) }
}
