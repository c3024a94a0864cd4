//! Serves one client connection with HTTP: to the proxy, or inside of a connection to port 80.
//!
//! ```text
//!          ┌────────────── response through, both go on ───────────┐
//!          ▼                                                       │
//!  await a head ─▶ order ─┬─ CONNECT ─▶ open ─▶ 200 ─▶ carry ─▶ end
//!   │ 408 431 414 400     │ (to the proxy only)                    │
//!   ▼                     └─ request ──▶ decide ──────▶ exchange ──┴─ 101 ─▶ tunnel ─▶ end
//!  end                                     │ 403 429 …
//!                                          ▼ await the next head if the body was empty, else end
//! ```
//!
//! One server connection is kept beside the client's. It is used again only for the same target, and each request on it
//! gets a new decision. Inside of a connection ([`inside`]) that target is the connection's own for every request, and
//! the server connection that was opened for it is the first one that is kept.

use super::carry::{Http, carry};
use super::exchange::{self, Outcome};
use super::framing::Body;
use super::head::{Request, parse_request};
use super::proxy_request::{Destination, Forward, ProxyRequest, Refused, TunnelContext, proxy_request};
use super::reply;
use crate::decide::client_gone::Waiting;
use crate::decide::denials;
use crate::decide::open::{Opened, Refusal, Speech};
use crate::decide::programs::caller::ConnectionOwner;
use crate::decide::state::Shared;
use crate::ingress::stub_addresses::meant;
use crate::ingress::tunnel::{self, Beginning, Ends};
use crate::memory::bounds::Share;
use crate::memory::inbuf::InBuf;
use crate::seams::Connection;
use nexus_policy::net::{Attempt, Charge, Denial, Host, Ingress, Target};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Serves `stream`, a connection to the proxy, to its end.
pub(crate) async fn serve(shared: Arc<Shared>, stream: TcpStream, connection: Connection) {
    let caller = ConnectionOwner::of(Some(connection));
    let client = Client {
        shared,
        stream,
        held: InBuf::default(),
        caller,
        fixed: None,
        must_name: false,
        kept: None,
        share: None,
    };
    client.requests().await;
}

/// Serves `stream`, whose connection was allowed, to its end: HTTP request by request, anything else as a tunnel.
pub(crate) async fn carried(stream: TcpStream, held: InBuf, opened: Opened) {
    if let Some(Http { stream, held, opened }) = carry(stream, held, opened).await {
        // The box breaks a cycle of futures: the inside has no CONNECT, but the compiler cannot know.
        Box::pin(inside(stream, held, opened)).await;
    }
}

/// Serves `stream`, on which a client speaks HTTP to the server of `opened`, to its end.
async fn inside(stream: TcpStream, held: InBuf, opened: Opened) {
    let shared = Arc::clone(&opened.guard.shared);
    let attempt = opened.guard.permit().attempt().clone();
    let kept = Some(KeptServer { target: attempt.target.clone(), opened });
    // The program was looked up before the connection was made, if it mattered.
    let caller = ConnectionOwner::of(None);
    let client = Client { shared, stream, held, caller, fixed: Some(attempt), must_name: false, kept, share: None };
    client.requests().await;
}

/// Server connection that may be used again.
struct KeptServer {
    target: Target,
    opened: Opened,
}

struct Client {
    shared: Arc<Shared>,
    stream: TcpStream,
    held: InBuf,
    caller: ConnectionOwner,
    /// Attempt of the connection, for every request inside of it.
    fixed: Option<Attempt>,
    /// True if a server connection was one that must name its host.
    must_name: bool,
    kept: Option<KeptServer>,
    /// Share that covers the head of the served request, until its answer is through.
    share: Option<Share>,
}

impl Client {
    async fn requests(mut self) {
        while let Some(proxy_request) = self.next().await {
            match proxy_request {
                ProxyRequest::Connect(target) => return self.connect(target).await,
                ProxyRequest::Forward(forward) if self.forward(&forward).await => {}
                ProxyRequest::Forward(_) => return,
            }
        }
    }

    fn proxy_request(&self, request: &Request<'_>) -> Result<ProxyRequest, Refused> {
        let Some(attempt) = &self.fixed else {
            return proxy_request(request, &Destination::Proxy(&|target| meant(&self.shared, target)));
        };
        let policy = self.shared.registry.policy();
        // Only now: what the kept connection leads to may have been learned while the client was silent.
        let must_name = self.must_name || self.kept.as_ref().is_some_and(|kept| kept.opened.guard.must_name());
        proxy_request(
            request,
            &Destination::Server(TunnelContext { attempt, must_name, policy: &policy, now: self.shared.clock.now() }),
        )
    }

    /// Records a request that goes no further.
    fn unreadable(&self, way: Ingress, denial: &Denial) {
        match &self.fixed {
            Some(attempt) => self.shared.denied(self.shared.next_id(), attempt, denial),
            None => self.shared.unreadable(way, denial),
        }
    }

    /// Returns the next order; `None` when the connection is over. The client has its answer then.
    async fn next(&mut self) -> Option<ProxyRequest> {
        self.must_name |= self.kept.as_ref().is_some_and(|kept| kept.opened.guard.must_name());
        self.held.rest();
        self.share = None;
        if self.held.is_empty() && !self.waited_for_a_byte().await {
            return None;
        }
        let (shared, limits) = (Arc::clone(&self.shared), self.shared.limits.clone());
        let read = async {
            let mut before = 0;
            let share = self.share.insert(shared.heads.share());
            loop {
                if self.held.worth_reading(before, &limits) {
                    match parse_request(self.held.bytes(), &limits) {
                        Ok(Some(request)) => return Some((self.proxy_request(&request), request.length)),
                        Ok(None) => {}
                        Err(error) => return Some((Err(Refused::head(error)), 0)),
                    }
                }
                before = self.held.bytes().len();
                let (mut from, _) = self.stream.split();
                match self.held.fill(&mut from).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) if share.covers(&self.held) => {}
                    Ok(_) => return Some((Err(too_many_heads()), 0)),
                }
            }
        };
        match timeout(limits.head_time, read).await {
            Ok(Some((Ok(proxy_request), length))) => {
                self.held.consume(length);
                self.held.shrink();
                Some(proxy_request)
            }
            Ok(Some((Err(refused), _))) => {
                self.unreadable(refused.way, &refused.denial);
                self.let_go();
                self.shared.pause_after_refusal().await;
                let text = reply::sentence(&refused.denial);
                self.last(&reply::answer(refused.status, refused.denial.code.as_str(), &text, true, false)).await;
                None
            }
            Ok(None) => None,
            Err(_) => {
                let denial = denials::too_many("the request did not arrive in time");
                self.unreadable(Ingress::HttpAbsolute, &denial);
                self.last(&reply::answer(408, denial.code.as_str(), &reply::sentence(&denial), true, false)).await;
                None
            }
        }
    }

    /// Waits for the next request. A kept server connection that a new policy forbids is dropped at once, not at next
    /// use.
    async fn waited_for_a_byte(&mut self) -> bool {
        let idle = tokio::time::sleep(self.shared.limits.keep_alive);
        tokio::pin!(idle);
        loop {
            let (mut from, _) = self.stream.split();
            let cut = async {
                match &self.kept {
                    Some(kept) => {
                        kept.opened.guard.entry.until_cut().await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                filled = self.held.fill(&mut from) => return filled.is_ok_and(|count| count > 0),
                () = cut => {}
                () = &mut idle => return false,
            }
            if let Some(kept) = self.kept.take() {
                tunnel::reset(&kept.opened.dialed.stream);
            }
            if self.fixed.is_some() {
                // The client's connection was allowed for this target alone.
                tunnel::reset(&self.stream);
                return false;
            }
        }
    }

    fn attempt(&self, target: Target, way: Ingress) -> Attempt {
        self.fixed.clone().unwrap_or(Attempt { target, way, program: None })
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting { client: &self.stream, has_sent: !self.held.is_empty() }
    }

    /// Gives back the read bytes and their share: the refusal may wait, and the client may not read.
    fn let_go(&mut self) {
        self.held = InBuf::default();
        self.share = None;
    }

    async fn last(&mut self, bytes: &[u8]) {
        self.let_go();
        // The server need not wait until the client has read the answer.
        self.kept = None;
        reply::last(&mut self.stream, bytes).await;
    }

    async fn connect(mut self, target: Target) {
        self.kept = None;
        let target = match meant(&self.shared, target) {
            Ok(target) => target,
            Err(denial) => {
                self.unreadable(Ingress::Connect, &denial);
                self.shared.pause_after_refusal().await;
                return self.last(&reply::refused(&Refusal::Denied(denial), true, false)).await;
            }
        };
        let attempt = self.attempt(target, Ingress::Connect);
        let opened = match self.shared.open(attempt, &self.caller, self.waiting(), Speech::Unknown).await {
            Ok(opened) => opened,
            Err(refusal) => {
                self.shared.pause_after_refusal().await;
                return self.last(&reply::refused(&refusal, true, false)).await;
            }
        };
        self.held.shrink();
        self.share = None;
        if self.stream.write_all(reply::CONNECTED).await.is_ok() {
            carried(self.stream, self.held, opened).await;
        }
    }

    async fn tunnel(&mut self, opened: &mut Opened, asked: Option<&Host>) {
        let ends = Ends {
            client: &mut self.stream,
            upstream: &mut opened.dialed.stream,
            from_client: std::mem::take(&mut self.held),
            from_upstream: std::mem::take(&mut opened.dialed.early),
        };
        let beginning = if asked.is_none() { Beginning::Named } else { Beginning::NamedAnother };
        tunnel::run(ends, &opened.guard, beginning).await;
    }

    /// Serves one request; reports whether the connection goes on.
    async fn forward(&mut self, proxy_request: &Forward) -> bool {
        let attempt = self.attempt(proxy_request.target.clone(), Ingress::HttpAbsolute);
        let policy = self.shared.registry.policy();
        if let Err(denial) = proxy_request.check_methods(&policy) {
            self.shared.denied(self.shared.next_id(), &attempt, &denial);
            return self.refuse(&Refusal::Denied(denial), proxy_request).await;
        }
        if let Err(denial) = self.shared.charge(Charge::Request) {
            self.shared.denied(self.shared.next_id(), &attempt, &denial);
            return self.refuse(&Refusal::Denied(denial), proxy_request).await;
        }
        let asked = proxy_request.asked.as_ref();
        let reused = match self.reuse(&attempt, asked) {
            Ok(reused) => reused,
            Err(denial) => return self.refuse(&Refusal::Denied(denial), proxy_request).await,
        };
        if let Some(mut opened) = reused {
            opened.guard.note_asked(asked);
            match exchange::run(&mut self.stream, &mut self.held, &mut opened, proxy_request).await {
                // A server may close a kept connection at any time; then it did nothing, and the request can be
                // repeated.
                Outcome::Nothing if proxy_request.repeatable() => drop(opened),
                outcome => return self.settle(outcome, opened, proxy_request).await,
            }
        }
        match self.shared.open(attempt, &self.caller, self.waiting(), Speech::PlainHttp).await {
            Ok(opened) if opened.guard.must_name() && asked.is_some() => {
                let denial = denials::names_another(&proxy_request.target);
                self.shared.denied(self.shared.next_id(), opened.guard.permit().attempt(), &denial);
                self.refuse(&Refusal::Denied(denial), proxy_request).await
            }
            Ok(mut opened) => {
                opened.guard.note_asked(asked);
                let outcome = exchange::run(&mut self.stream, &mut self.held, &mut opened, proxy_request).await;
                self.settle(outcome, opened, proxy_request).await
            }
            Err(refusal) => self.refuse(&refusal, proxy_request).await,
        }
    }

    /// Returns the kept connection if it fits, is alive, and the policy still allows it.
    fn reuse(&mut self, attempt: &Attempt, asked: Option<&Host>) -> Result<Option<Opened>, Denial> {
        let Some(KeptServer { target, opened }) = self.kept.take() else { return Ok(None) };
        if target != attempt.target || !alive(&opened) {
            return Ok(None);
        }
        match self.shared.again(&opened.guard, asked) {
            Ok(()) => Ok(Some(opened)),
            Err(denial) => Err(denial),
        }
    }

    async fn settle(&mut self, outcome: Outcome, mut opened: Opened, proxy_request: &Forward) -> bool {
        match outcome {
            Outcome::Done { client, server } => {
                if client && server {
                    self.kept = Some(KeptServer { target: proxy_request.target.clone(), opened });
                }
                if !client && let Err(error) = self.stream.shutdown().await {
                    // The client closed first.
                    drop(error);
                }
                client
            }
            Outcome::Switched => {
                self.tunnel(&mut opened, proxy_request.asked.as_ref()).await;
                false
            }
            Outcome::Nothing => self.bad_server("it closed the connection without an answer", proxy_request).await,
            Outcome::BadServer(why) => self.bad_server(&why, proxy_request).await,
            Outcome::BadBody(error) => {
                tunnel::reset(&opened.dialed.stream);
                let denial = denials::malformed(error.to_string());
                self.unreadable(Ingress::HttpAbsolute, &denial);
                self.last(&reply::denied(&denial, true, false)).await;
                false
            }
            Outcome::Cut(why) => {
                tunnel::reset(&opened.dialed.stream);
                self.last(&reply::denied(&why, true, proxy_request.method == "HEAD")).await;
                false
            }
            Outcome::Broken => {
                exchange::break_off(&self.stream, &opened);
                false
            }
        }
    }

    async fn bad_server(&mut self, why: &str, proxy_request: &Forward) -> bool {
        let text = format!("nexus: the answer of {} cannot be used: {why}", proxy_request.target);
        self.last(&reply::answer(502, "OTHER", &text, true, proxy_request.method == "HEAD")).await;
        false
    }

    /// Answers a refusal; the connection goes on if the request had no body that would have to be read first.
    async fn refuse(&mut self, refusal: &Refusal, proxy_request: &Forward) -> bool {
        let close = proxy_request.close || proxy_request.body != Body::None;
        if close {
            self.let_go();
        }
        self.shared.pause_after_refusal().await;
        let bytes = reply::refused(refusal, close, proxy_request.method == "HEAD");
        if close {
            self.last(&bytes).await;
            return false;
        }
        self.stream.write_all(&bytes).await.is_ok()
    }
}

fn too_many_heads() -> Refused {
    let denial = denials::too_many("the sandbox has too many unfinished requests");
    Refused { status: denial.http_status(), way: Ingress::HttpAbsolute, denial }
}

/// Reports whether a kept connection is open and silent. Bytes without a request would be taken for the next answer.
fn alive(opened: &Opened) -> bool {
    let mut one = [0; 1];
    let silent = opened.dialed.stream.try_read(&mut one);
    opened.dialed.early.is_empty() && silent.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}
