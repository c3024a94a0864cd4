//! The ways in, up to the point where the client can speak to the server.

use super::{TIMEOUT, World, connect, field, read_head, try_connect};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

/// Opens a tunnel by CONNECT. The error is the code of a refusal.
pub fn by_connect(world: &World, authority: &str) -> Result<TcpStream, String> {
    let mut stream = connect(world.http);
    stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let head = read_head(&mut stream);
    match field(&head, "x-proxy-error") {
        Some(code) => Err(code.into()),
        None => Ok(stream),
    }
}

/// Opens a connection by SOCKS5. The error is the number of a refusal's reply.
pub fn by_socks(world: &World, kind: u8, host: &[u8], port: u16) -> Result<TcpStream, String> {
    let mut stream = connect(world.socks);
    let mut request = vec![5, 1, 0, 5, 1, 0, kind];
    if kind == 3 {
        request.push(u8::try_from(host.len()).unwrap());
    }
    request.extend_from_slice(host);
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..3], [5, 0, 5]);
    if reply[3] == 0 { Ok(stream) } else { Err(reply[3].to_string()) }
}

/// Opens a redirected connection. A denial is a reset, which may come before `connect` returns, or only after bytes
/// were sent.
pub fn by_transparent(world: &World, to: SocketAddr) -> Result<TcpStream, String> {
    world.redirected.to(to);
    try_connect(world.transparent).map_err(|_| "reset".into())
}

/// Asks the DNS stub for a name; returns the synthetic address, or the response code.
pub fn by_dns(world: &World, name: &Name) -> Result<IpAddr, ResponseCode> {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.queries.push(Query::query(name.clone(), RecordType::A));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.send_to(&message.to_vec().unwrap(), world.dns_udp).unwrap();
    let mut answer = [0; 1500];
    let count = socket.recv(&mut answer).unwrap();
    let answer = Message::from_vec(&answer[..count]).unwrap();
    match answer.answers.first().map(|record| &record.data) {
        Some(RData::A(address)) => Ok(IpAddr::V4(address.0)),
        _ => Err(answer.metadata.response_code),
    }
}
