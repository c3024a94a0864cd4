//! Connects to the network, as the only place that does. It takes a `Permit` and connects to the permit's route.
//!
//! `clippy.toml` of this crate forbids every other call that connects. A name is never looked up here: it was resolved
//! and checked before, and a second look-up could give another address (DNS rebinding). The one exception is the
//! operator's own proxy, whose name comes from the operator.

#![allow(clippy::disallowed_methods, reason = "this is the place that may connect")]

use crate::memory::bounds::Heads;
use crate::memory::inbuf::InBuf;
use crate::seams::{ResolveError, Resolver};
use crate::upstream::proxy::UpstreamProxy;
use nexus_policy::net::{Host, Permit, Route, Target};
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// Maximum length of an upstream proxy's answer to CONNECT, in bytes.
const UPSTREAM_HEAD: usize = 16 * 1024;

/// Silence of a connection before the first keepalive probe, and interval between two probes.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Number of unanswered probes after which the connection has ended.
const KEEP_ALIVE_TRIES: u32 = 5;

/// Maximum number of addresses of one attempt that are tried at the same time.
const MAX_AT_ONCE: usize = 6;

/// Maximum number of sockets of all attempts together that are tried beside the first of each.
pub(crate) const RESERVED_SOCKETS: usize = 128;

/// Settings and shared state for connecting.
pub(crate) struct Dialer {
    /// Semaphore with [`RESERVED_SOCKETS`] places.
    pub(crate) reserve: Arc<Semaphore>,
    pub(crate) connect_time: Duration,
    pub(crate) stagger: Duration,
    pub(crate) upstream: Option<UpstreamProxy>,
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) heads: Arc<Heads>,
}

/// Count of the bytes that an upstream proxy sent and that the connection has not counted yet.
#[derive(Debug, Default)]
pub(crate) struct Received(AtomicUsize);

impl Received {
    /// Returns the count and resets it to zero.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::AcqRel)
    }
}

/// Connection that was made.
pub(crate) struct Dialed {
    pub(crate) stream: TcpStream,
    /// Bytes that came behind an upstream proxy's answer already.
    pub(crate) early: InBuf,
    /// Present if the peer is an upstream proxy that takes whole requests and was not asked for a tunnel yet.
    pub(crate) forwarding: Option<Forwarding>,
}

/// Inputs for a request for a tunnel.
#[derive(Debug, Clone)]
pub(crate) struct Forwarding {
    target: Target,
    authorization: Option<String>,
    connect_time: Duration,
    heads: Arc<Heads>,
}

impl Dialed {
    /// Asks the upstream proxy for a tunnel, if one is needed and was not asked for yet.
    pub(crate) async fn ask_for_tunnel(&mut self, received: &Received) -> Result<(), DialError> {
        let Some(Forwarding { target, authorization, connect_time, heads }) = self.forwarding.take() else {
            return Ok(());
        };
        let refused = |why: String| DialError::Upstream { target: target.clone(), why };
        let asked = ask(&mut self.stream, &target, authorization.as_deref(), &heads, received);
        let asked = timeout(connect_time, asked).await;
        self.early = asked.map_err(|_| refused("it does not answer".into()))?.map_err(refused)?;
        Ok(())
    }
}

/// Error of a connection that could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// No address answered; the error is that of the last one.
    #[error("{target} cannot be reached: {source}")]
    Connect {
        /// Target of the connection.
        target: Target,
        /// Error of the last address.
        source: io::Error,
    },
    /// No address answered in time.
    #[error("{target} does not answer within {} s", .after.as_secs())]
    TimedOut {
        /// Target of the connection.
        target: Target,
        /// Time limit that passed.
        after: Duration,
    },
    /// The operator's proxy did not connect.
    #[error("the upstream proxy does not connect to {target}: {why}")]
    Upstream {
        /// Target of the connection.
        target: Target,
        /// Reason of the proxy's failure.
        why: String,
    },
}

impl Dialer {
    /// Connects to the route of `permit`. Counts the bytes of an upstream proxy in `received`.
    pub(crate) async fn dial(&self, permit: &Permit, received: &Received) -> Result<Dialed, DialError> {
        match permit.route() {
            Route::Addrs(addrs) => {
                let stream = self.any_of(addrs, permit.target()).await?;
                Ok(Dialed { stream, early: InBuf::default(), forwarding: None })
            }
            Route::ViaProxy(target) => self.via_proxy(target, permit.expects_http(), received).await,
        }
    }

    async fn any_of(&self, addrs: &[SocketAddr], target: &Target) -> Result<TcpStream, DialError> {
        let connected = match addrs {
            [one] => timeout(self.connect_time, TcpStream::connect(*one)).await,
            many => timeout(self.connect_time, race(many, self.stagger, &self.reserve)).await,
        };
        match connected {
            Ok(Ok(stream)) => {
                // A client's small writes were sent one by one; holding them back until the server acknowledges the
                // last would add 40 ms to what comes in two. It fails only on a connection that is gone already.
                let settled = stream.set_nodelay(true).and_then(|()| keep_alive(&stream));
                settled.map_err(|source| DialError::Connect { target: target.clone(), source })?;
                Ok(stream)
            }
            Ok(Err(source)) => Err(DialError::Connect { target: target.clone(), source }),
            Err(_) => Err(DialError::TimedOut { target: target.clone(), after: self.connect_time }),
        }
    }

    /// Connects to the upstream proxy and asks it for a tunnel. For expected HTTP on port 80 the proxy gets whole
    /// requests, since such proxies allow tunnels to port 443 alone; see [`Dialed::ask_for_tunnel`]. A proxy with a
    /// login never gets whole requests: it may repeat a request in its answer, and the answer goes to the sandbox.
    async fn via_proxy(&self, target: &Target, http: bool, received: &Received) -> Result<Dialed, DialError> {
        let refused = |why: String| DialError::Upstream { target: target.clone(), why };
        let Some(proxy) = &self.upstream else { return Err(refused("none is configured".into())) };
        let addrs = match &proxy.target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, proxy.target.port.number())],
            Host::Name(name) => {
                let found = timeout(self.connect_time, self.resolver.lookup(name)).await;
                let found = found.map_err(|_| refused("its name is not resolved in time".into()))?;
                // The proxy's name is left out: it belongs to the operator.
                let found = found.map_err(|error| match error {
                    ResolveError::Failed { why, .. }
                    | ResolveError::Local { why, .. }
                    | ResolveError::Silent { why, .. }
                    | ResolveError::Configuration { why } => refused(format!("its name cannot be resolved: {why}")),
                    ResolveError::TooMany { .. } => refused("its name has too many addresses".into()),
                })?;
                found.addrs.into_iter().map(|address| SocketAddr::new(address, proxy.target.port.number())).collect()
            }
        };
        if addrs.is_empty() {
            return Err(refused("its name has no address".into()));
        }
        // The sandbox learns the failure, but not the address of the operator's proxy.
        let stream = self.any_of(&addrs, &proxy.target).await.map_err(|error| match error {
            DialError::Connect { source, .. } => refused(format!("it cannot be reached: {source}")),
            DialError::TimedOut { after, .. } => refused(format!("it does not answer within {} s", after.as_secs())),
            upstream @ DialError::Upstream { .. } => upstream,
        })?;
        let (target, authorization) = (target.clone(), proxy.authorization.clone());
        let has_login = authorization.is_some();
        let heads = Arc::clone(&self.heads);
        let forwarding = Some(Forwarding { target, authorization, connect_time: self.connect_time, heads });
        let mut dialed = Dialed { stream, early: InBuf::default(), forwarding };
        if !http || has_login {
            dialed.ask_for_tunnel(received).await?;
        }
        Ok(dialed)
    }
}

/// Makes the kernel probe a silent server every minute: address translators and load balancers forget a silent
/// connection after 5 minutes, and the client's own keepalive ends at the egress.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE)?;
    sockopt::set_tcp_keepcnt(stream, KEEP_ALIVE_TRIES)?;
    Ok(())
}

/// Connects by happy eyeballs without preference: each address gets a head start over the next, and the first to answer
/// wins. When too many are silent, the longest try is given up for the next address.
async fn race(addrs: &[SocketAddr], stagger: Duration, reserve: &Arc<Semaphore>) -> io::Result<TcpStream> {
    let mut trying = JoinSet::new();
    let mut handles = VecDeque::new();
    let mut waiting = addrs.iter();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if waiting.len() > 0 {
            let place = match trying.len() {
                0 => Some(None),
                1..MAX_AT_ONCE => Arc::clone(reserve).try_acquire_owned().ok().map(Some),
                _ => None,
            };
            if let Some(place) = place {
                handles.extend(waiting.next().map(|address| trying.spawn(connect(*address, place))));
            } else if let Some(oldest) = oldest(&mut handles) {
                oldest.abort();
                last = io::ErrorKind::TimedOut.into();
            }
        }
        let more = waiting.len() > 0;
        let ended = tokio::select! {
            ended = trying.join_next() => ended,
            () = tokio::time::sleep(stagger), if more => continue,
        };
        match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => last = error,
            Some(Err(error)) if error.is_cancelled() => {}
            Some(Err(error)) => last = io::Error::other(error),
            None if more => {}
            None => return Err(last),
        }
    }
}

/// Returns the try that began first and still runs.
fn oldest(handles: &mut VecDeque<AbortHandle>) -> Option<AbortHandle> {
    while let Some(handle) = handles.pop_front() {
        if !handle.is_finished() {
            return Some(handle);
        }
    }
    None
}

/// Connects; the place is given back when the connection is made or the try ends.
async fn connect(address: SocketAddr, place: Option<OwnedSemaphorePermit>) -> io::Result<TcpStream> {
    let connected = TcpStream::connect(address).await;
    drop(place);
    connected
}

/// Describes the status of an answer that opens no tunnel. Only digits are repeated: the text goes inside and into the
/// record.
fn refusal(status: &[u8]) -> String {
    match str::from_utf8(status) {
        Ok(text) if text.len() == 3 && status.iter().all(u8::is_ascii_digit) => format!("it answers {text}"),
        Ok(_) | Err(_) => "its answer has no status".to_owned(),
    }
}

/// Sends CONNECT and reads the answer; returns the bytes that came behind it.
async fn ask(
    stream: &mut TcpStream,
    target: &Target,
    authorization: Option<&str>,
    heads: &Arc<Heads>,
    received: &Received,
) -> Result<InBuf, String> {
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = authorization {
        head.push_str("Proxy-Authorization: ");
        head.push_str(authorization);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = InBuf::default();
    let mut share = heads.share();
    let (mut from, _) = stream.split();
    loop {
        match answer.fill(&mut from).await.map_err(|error| error.to_string())? {
            0 => return Err("it closed the connection".into()),
            count => received.0.fetch_add(count, Ordering::AcqRel),
        };
        if let Some(end) = answer.bytes().windows(4).position(|four| four == b"\r\n\r\n") {
            let line = answer.bytes().split(|byte| *byte == b'\r').next().unwrap_or_default();
            let status = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            let is_status = status.len() == 3 && status.iter().all(u8::is_ascii_digit);
            if !line.starts_with(b"HTTP/1.") || !is_status || !status.starts_with(b"2") {
                return Err(refusal(status));
            }
            answer.consume(end + 4);
            answer.shrink();
            return Ok(answer);
        }
        if answer.bytes().len() > UPSTREAM_HEAD {
            return Err("its answer is too long".into());
        }
        if !share.covers(&answer) {
            return Err("the sandbox has too many unfinished answers".into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Returns a port of loopback on which no connection is ever made, since its queue is full, and the sockets that
    /// keep it so.
    fn silent() -> (Vec<std::os::fd::OwnedFd>, u16) {
        let kind = (AddressFamily::INET, SocketType::STREAM);
        let socket = rustix::net::socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::bind(&socket, &SocketAddr::from(([0, 0, 0, 0], 0))).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let port = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap().port();
        let mut held = vec![socket];
        for _ in 0..8 {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let client = rustix::net::socket_with(kind.0, kind.1, flags, None).unwrap();
            match rustix::net::connect(&client, &SocketAddr::from(([127, 0, 0, 1], port))) {
                Ok(()) | Err(_) => held.push(client),
            }
        }
        (held, port)
    }

    #[test]
    fn only_digits_of_a_status_are_repeated() {
        assert_eq!(refusal(b"503"), "it answers 503");
        for odd in ["", "50", "5033", "\u{1b}]0", "a\u{202e}", "no!"] {
            assert_eq!(refusal(odd.as_bytes()), "its answer has no status", "{odd:?}");
        }
    }

    fn syn_sent(port: u16) -> usize {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        table.lines().filter(|line| line.contains(&format!(":{port:04X} 02 "))).count()
    }

    #[test]
    fn many_silent_addresses_take_few_sockets_and_the_last_is_tried() {
        let (held, port) = silent();
        let before = syn_sent(port);
        assert!(before > 0, "the queue is not full");
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = (1..=40).map(|last| SocketAddr::from(([127, 0, 1, last], port)));
        let addrs: Vec<SocketAddr> = silent.chain([server.local_addr().unwrap()]).collect();
        let (over, most) = (Arc::new(AtomicBool::new(false)), Arc::clone(&Arc::new(Semaphore::new(RESERVED_SOCKETS))));
        let ended = Arc::clone(&over);
        let counter = std::thread::spawn(move || {
            let mut seen = 0;
            while !ended.load(Ordering::SeqCst) {
                seen = seen.max(syn_sent(port));
            }
            seen
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connected = runtime.block_on(race(&addrs, Duration::from_millis(20), &most));
        over.store(true, Ordering::SeqCst);
        assert_eq!(connected.unwrap().peer_addr().unwrap(), server.local_addr().unwrap());
        let seen = counter.join().unwrap();
        // One may be closed while the next begins.
        assert!((3..=MAX_AT_ONCE + 1).contains(&(seen - before)), "{seen}, {before} before");
        drop(runtime);
        assert_eq!(most.available_permits(), RESERVED_SOCKETS, "every place was given back");
        drop(held);
    }
}
