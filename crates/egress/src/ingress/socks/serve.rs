//! Serves one client connection to the SOCKS5 proxy: greeting, request, reply, tunnel.

use super::frame::{Command, Greeting, Step, greeting, request};
use crate::decide::client_gone::Waiting;
use crate::decide::denials;
use crate::decide::open::{Opened, Refusal, Speech};
use crate::decide::programs::caller::ConnectionOwner;
use crate::decide::state::Shared;
use crate::ingress::http::serve::carried;
use crate::ingress::stub_addresses::meant;
use crate::memory::inbuf::InBuf;
use crate::seams::Connection;
use crate::upstream::dial::DialError;
use nexus_policy::net::{Attempt, Denial, Ingress};
use std::io;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Serves `stream` to its end. An error of the client's own connection concerns no other connection.
pub(crate) async fn serve(shared: Arc<Shared>, mut stream: TcpStream, connection: Connection) {
    let mut held = InBuf::default();
    let asked = timeout(shared.limits.head_time, negotiate(&shared, &mut stream, &mut held)).await;
    let Ok(Ok(Some(command))) = asked else { return };
    let waiting = Waiting { client: &stream, has_sent: !held.is_empty() };
    match opened(&shared, command, &ConnectionOwner::of(Some(connection)), waiting).await {
        Ok(opened) => {
            if stream.write_all(&reply(0)).await.is_ok() {
                carried(stream, held, opened).await;
            }
        }
        Err(code) => {
            shared.pause_after_refusal().await;
            crate::ingress::http::reply::last(&mut stream, &reply(code)).await;
        }
    }
}

/// Reads greeting and request; `None` after a greeting that was refused.
async fn negotiate(shared: &Shared, stream: &mut TcpStream, held: &mut InBuf) -> io::Result<Option<Command>> {
    let started = step(stream, held, greeting).await?;
    let refusal: Option<(&[u8], &str)> = match started {
        Greeting::Open => None,
        Greeting::OnlyOther => Some((&[5, 0xff], "the SOCKS client offers no way without authentication")),
        Greeting::Version4 => {
            Some((&[0, 0x5b, 0, 0, 0, 0, 0, 0], "SOCKS4 is refused: use SOCKS5 with names (socks5h)"))
        }
        Greeting::NotSocks => Some((&[], "the client does not speak SOCKS5")),
    };
    if let Some((bytes, why)) = refusal {
        shared.unreadable(Ingress::Socks5, &denials::malformed(why));
        crate::ingress::http::reply::last(stream, bytes).await;
        return Ok(None);
    }
    stream.write_all(&[5, 0]).await?;
    Ok(Some(step(stream, held, request).await?))
}

async fn step<T>(stream: &mut TcpStream, held: &mut InBuf, read: fn(&[u8]) -> Step<T>) -> io::Result<T> {
    let (mut from, _) = stream.split();
    loop {
        if let Step::Done(message, length) = read(held.bytes()) {
            held.consume(length);
            return Ok(message);
        }
        if held.fill(&mut from).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Opens the connection, or returns the code of the reply with the reason.
async fn opened(
    shared: &Arc<Shared>,
    command: Command,
    caller: &ConnectionOwner,
    waiting: Waiting<'_>,
) -> Result<Opened, u8> {
    let unreadable = |denial: Denial, code: u8| {
        shared.unreadable(Ingress::Socks5, &denial);
        code
    };
    let target = match command {
        Command::Connect(target) => target,
        Command::Unreadable(why) => {
            let denial = Denial::unreadable(&why);
            let code = denial.socks_reply();
            return Err(unreadable(denial, code));
        }
        Command::NotSupported => return Err(unreadable(denials::malformed("SOCKS5 serves CONNECT only"), 7)),
        Command::AddressType => return Err(unreadable(denials::malformed("the kind of address is unknown"), 8)),
        Command::Malformed => return Err(unreadable(denials::malformed("the SOCKS request is malformed"), 1)),
    };
    let target = meant(shared, target).map_err(|denial| {
        let code = denial.socks_reply();
        unreadable(denial, code)
    })?;
    let attempt = Attempt { target, way: Ingress::Socks5, program: None };
    shared.open(attempt, caller, waiting, Speech::Unknown).await.map_err(|refusal| match refusal {
        Refusal::Denied(denial) => denial.socks_reply(),
        Refusal::Unreachable(DialError::TimedOut { .. }) => 4,
        Refusal::Unreachable(DialError::Connect { source, .. }) => match source.kind() {
            io::ErrorKind::ConnectionRefused => 5,
            io::ErrorKind::NetworkUnreachable => 3,
            _ => 4,
        },
        Refusal::Unreachable(DialError::Upstream { .. }) => 1,
    })
}

/// Builds a reply; the bound address is of no use to the client and reveals the host, so it is zero.
fn reply(code: u8) -> [u8; 10] {
    [5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
