//! The only place that connects. What it takes is a `Permit`, and it connects to what the permit says.
//!
//! `clippy.toml` of this crate forbids every other call that connects. A name is never looked up here: it was resolved
//! and checked before, and a second look-up could give another address (DNS rebinding). The one exception is the
//! operator's own proxy, whose name comes from the operator.

#![allow(clippy::disallowed_methods, reason = "this is the place that may connect")]

use crate::inbuf::InBuf;
use crate::resolve::{ResolveError, Resolver};
use crate::upstream::UpstreamProxy;
use nexus_policy::net::{Host, Permit, Route, Target};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The longest answer of an upstream proxy to CONNECT that is read.
const UPSTREAM_HEAD: usize = 16 * 1024;

/// How to connect.
pub(crate) struct Dialer {
    pub(crate) connect_time: Duration,
    pub(crate) stagger: Duration,
    pub(crate) upstream: Option<UpstreamProxy>,
    pub(crate) resolver: Arc<dyn Resolver>,
}

/// A connection.
pub(crate) struct Dialed {
    pub(crate) stream: TcpStream,
    /// What came behind an upstream proxy's answer already.
    pub(crate) early: InBuf,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// No address answered; the last one's reason.
    #[error("{target} cannot be reached: {source}")]
    Connect {
        /// Where to.
        target: Target,
        /// Why.
        source: io::Error,
    },
    /// No address answered in time.
    #[error("{target} does not answer within {} s", .after.as_secs())]
    TimedOut {
        /// Where to.
        target: Target,
        /// How long it was tried.
        after: Duration,
    },
    /// The operator's proxy did not connect.
    #[error("the upstream proxy does not connect to {target}: {why}")]
    Upstream {
        /// Where to.
        target: Target,
        /// Why.
        why: String,
    },
}

impl Dialer {
    /// Connects to exactly what `permit` says.
    pub(crate) async fn dial(&self, permit: &Permit) -> Result<Dialed, DialError> {
        match permit.route() {
            Route::Addrs(addrs) => {
                let stream = self.any_of(addrs, permit.target()).await?;
                Ok(Dialed { stream, early: InBuf::default() })
            }
            Route::ViaProxy(target) => self.via_proxy(target).await,
        }
    }

    async fn any_of(&self, addrs: &[SocketAddr], target: &Target) -> Result<TcpStream, DialError> {
        let connected = match addrs {
            [one] => timeout(self.connect_time, TcpStream::connect(*one)).await,
            many => timeout(self.connect_time, race(many, self.stagger)).await,
        };
        match connected {
            Ok(Ok(stream)) => {
                // A client's small writes were sent one by one; holding them back until the server acknowledges the
                // last would add 40 ms to what comes in two. It fails only on a connection that is gone already.
                stream.set_nodelay(true).map_err(|source| DialError::Connect { target: target.clone(), source })?;
                Ok(stream)
            }
            Ok(Err(source)) => Err(DialError::Connect { target: target.clone(), source }),
            Err(_) => Err(DialError::TimedOut { target: target.clone(), after: self.connect_time }),
        }
    }

    /// CONNECT to the operator's proxy, for plain HTTP too, so that one form serves all ways in.
    async fn via_proxy(&self, target: &Target) -> Result<Dialed, DialError> {
        let refused = |why: String| DialError::Upstream { target: target.clone(), why };
        let Some(proxy) = &self.upstream else { return Err(refused("none is configured".into())) };
        let addrs = match &proxy.target.host {
            Host::Address(address) => vec![SocketAddr::new(*address, proxy.target.port.number())],
            Host::Name(name) => {
                let found = timeout(self.connect_time, self.resolver.lookup(name)).await;
                let found = found.map_err(|_| refused("its name is not resolved in time".into()))?;
                // Not its name: that is the operator's.
                let found = found.map_err(|error| match error {
                    ResolveError::Failed { why, .. } | ResolveError::Configuration { why } => {
                        refused(format!("its name cannot be resolved: {why}"))
                    }
                })?;
                found.addrs.into_iter().map(|address| SocketAddr::new(address, proxy.target.port.number())).collect()
            }
        };
        if addrs.is_empty() {
            return Err(refused("its name has no address".into()));
        }
        // The sandbox learns what failed, and not where the operator's proxy is.
        let mut stream = self.any_of(&addrs, &proxy.target).await.map_err(|error| match error {
            DialError::Connect { source, .. } => refused(format!("it cannot be reached: {source}")),
            DialError::TimedOut { after, .. } => refused(format!("it does not answer within {} s", after.as_secs())),
            upstream @ DialError::Upstream { .. } => upstream,
        })?;
        let asked = timeout(self.connect_time, ask(&mut stream, target, proxy.authorization.as_deref())).await;
        let early = asked.map_err(|_| refused("it does not answer".into()))?.map_err(refused)?;
        Ok(Dialed { stream, early })
    }
}

/// Happy eyeballs without preference: each address gets a head start over the next, the first that answers wins.
async fn race(addrs: &[SocketAddr], stagger: Duration) -> io::Result<TcpStream> {
    let mut trying = JoinSet::new();
    let mut waiting = addrs.iter();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            trying.spawn(TcpStream::connect(*address));
        }
        let more = waiting.len() > 0;
        let ended = tokio::select! {
            ended = trying.join_next() => ended,
            () = tokio::time::sleep(stagger), if more => continue,
        };
        match ended {
            Some(Ok(Ok(stream))) => return Ok(stream),
            Some(Ok(Err(error))) => last = error,
            Some(Err(error)) => last = io::Error::other(error),
            None if more => {}
            None => return Err(last),
        }
    }
}

/// Sends CONNECT and reads the answer; gives back what came behind it.
async fn ask(stream: &mut TcpStream, target: &Target, authorization: Option<&str>) -> Result<InBuf, String> {
    let mut head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = authorization {
        head.push_str("Proxy-Authorization: ");
        head.push_str(authorization);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = InBuf::default();
    let (mut from, _) = stream.split();
    loop {
        if answer.fill(&mut from).await.map_err(|error| error.to_string())? == 0 {
            return Err("it closed the connection".into());
        }
        if let Some(end) = answer.bytes().windows(4).position(|four| four == b"\r\n\r\n") {
            let line = answer.bytes().split(|byte| *byte == b'\r').next().unwrap_or_default();
            let status = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
            if !line.starts_with(b"HTTP/1.") || status.len() != 3 || !status.starts_with(b"2") {
                return Err(format!("it answers {}", String::from_utf8_lossy(status)));
            }
            answer.consume(end + 4);
            return Ok(answer);
        }
        if answer.bytes().len() > UPSTREAM_HEAD {
            return Err("its answer is too long".into());
        }
    }
}
