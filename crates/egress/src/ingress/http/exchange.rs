//! Sends one request to a server and passes its response back.
//!
//! The body goes up while the response is awaited, since a server may answer early, and a client that sent
//! `Expect: 100-continue` waits for it. When the response is through before the body is, both connections end: the
//! start of the next request is not known then.

use super::body::{CopyError, Direction};
use super::fields::response_fields;
use super::framing::{Body, content_length, response_body};
use super::head::{HeadError, Response, parse_response, unfold_response};
use super::proxy_request::{Forward, put};
use crate::decide::client_gone;
use crate::decide::denials;
use crate::decide::guard::Flow;
use crate::decide::open::Opened;
use crate::ingress::tunnel;
use crate::memory::inbuf::InBuf;
use nexus_policy::net::Denial;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// Bounds of interim answers (1xx) before the answer itself: their number and their bytes. A server that works for long
/// sends one now and then.
const MAX_INTERIM: u32 = 1024;
const MAX_INTERIM_BYTES: usize = 256 * 1024;

/// Result of an exchange.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The response is through; the flags say which connections can go on.
    Done {
        /// True if the client's connection can go on.
        client: bool,
        /// True if the server's connection can go on.
        server: bool,
    },
    /// The connection is a WebSocket now, and a tunnel from here on.
    Switched,
    /// The server closed before it sent a byte: perhaps a kept connection that had ended already.
    Nothing,
    /// The server's answer cannot be used, and nothing was passed on: 502.
    BadServer(String),
    /// The request's body breaks the coding, and nothing was answered: 400.
    BadBody(HeadError),
    /// A decision cut the connection before anything was answered.
    Cut(Denial),
    /// The exchange broke in the middle; both ends get a reset.
    Broken,
}

/// Sends `proxy_request` on `opened` and passes the answer to `client`.
pub(crate) async fn run(
    client: &mut TcpStream,
    from_client: &mut InBuf,
    opened: &mut Opened,
    proxy_request: &Forward,
) -> Outcome {
    let Opened { guard, dialed } = opened;
    let for_proxy = dialed.forwarding.as_ref().and_then(|_| proxy_request.head_for_proxy());
    if for_proxy.is_some() && proxy_request.method.eq_ignore_ascii_case("TRACE") {
        // The answer is the request as the last proxy got it, with everything that the ones before it added.
        return Outcome::BadBody(HeadError::Malformed("TRACE is not passed on to an upstream proxy"));
    }
    if for_proxy.is_none() {
        let asked = dialed.ask_for_tunnel(&guard.received).await;
        if let Err(why) = guard.count_received() {
            return Outcome::Cut(why);
        }
        if let Err(error) = asked {
            guard.failed(&error);
            return Outcome::BadServer(error.to_string());
        }
    }
    // This share is beside the one that covers the client's head.
    let mut second = guard.shared.heads.share();
    if for_proxy.as_ref().is_some_and(|head| !second.covers_bytes(head.capacity())) {
        return Outcome::Cut(denials::too_many("the sandbox has too many unfinished requests"));
    }
    let by_proxy = for_proxy.is_some();
    let head = for_proxy.as_ref().unwrap_or(&proxy_request.head);
    let answered = AtomicBool::new(false);
    let (mut client_read, mut client_write) = client.split();
    let (mut server_read, mut server_write) = dialed.stream.split();
    let mut up =
        Direction { from: &mut client_read, held: from_client, to: &mut server_write, guard: &*guard, flow: Flow::Up };
    let mut down = Direction {
        from: &mut server_read,
        held: &mut dialed.early,
        to: &mut client_write,
        guard: &*guard,
        flow: Flow::Down,
    };
    let sent = AtomicBool::new(false);
    let both = async {
        // This future ends only by an error: after the request, it waits to notice that the client has gone.
        let send = async {
            let pushed = match up.write(head).await {
                Ok(()) => up.copy(proxy_request.body, false).await,
                failed => failed,
            };
            match pushed {
                Ok(()) => sent.store(true, Ordering::Relaxed),
                // The server may have answered early and closed.
                Err(CopyError::To) => {}
                Err(error) => return error,
            }
            client_gone::watch(up.from.as_ref(), || guard.client_ended()).await;
            CopyError::From
        };
        let receive = response(&mut down, proxy_request, &answered, by_proxy);
        tokio::select! {
            biased;
            error = send => Err(error),
            received = receive => received.map(|outcome| match outcome {
                Outcome::Done { .. } if !sent.load(Ordering::Relaxed) => Outcome::Done { client: false, server: false },
                outcome => outcome,
            }),
        }
    };
    let ended = tokio::select! {
        biased;
        ended = both => ended,
        why = guard.entry.until_cut() => Err(CopyError::Denied(why)),
        over = guard.until_over() => Err(over.map_or(CopyError::From, CopyError::Denied)),
    };
    let quiet = !answered.load(Ordering::Relaxed);
    match ended {
        Ok(outcome) => outcome,
        Err(CopyError::Malformed(error)) if quiet => Outcome::BadBody(error),
        Err(CopyError::Denied(why)) => {
            guard.entry.cut(why.clone());
            if quiet { Outcome::Cut(why) } else { Outcome::Broken }
        }
        Err(CopyError::From | CopyError::To | CopyError::Malformed(_)) => Outcome::Broken,
    }
}

/// Resets both connections, so that neither side takes an incomplete message for a whole one.
pub(crate) fn break_off(client: &TcpStream, opened: &Opened) {
    tunnel::reset(client);
    tunnel::reset(&opened.dialed.stream);
}

async fn response(
    down: &mut Direction<'_, '_>,
    proxy_request: &Forward,
    answered: &AtomicBool,
    by_proxy: bool,
) -> Result<Outcome, CopyError> {
    let mut before = 0;
    let mut share = down.guard.shared.heads.share();
    let (mut started, mut interim, mut interim_bytes) = (None, 0, 0);
    loop {
        let limits = &down.guard.shared.limits;
        let parsed = if down.held.worth_reading(before, limits) {
            let bytes = down.held.bytes_mut();
            let head = bytes.len().min(limits.head_bytes + 1);
            unfold_response(&mut bytes[..head]);
            parse_response(bytes, limits)
        } else {
            Ok(None)
        };
        let response = match parsed {
            Ok(Some(response)) => response,
            Ok(None) => {
                before = down.held.bytes().len();
                let time = limits.head_time;
                // The server may take any time before the first byte.
                started = started.or_else(|| (before > 0).then(Instant::now));
                let more = match started {
                    Some(started) => timeout_at(started + time, down.more()).await,
                    None => Ok(down.more().await),
                };
                let Ok(more) = more else {
                    return unusable(answered, format!("its head is not whole after {} s", time.as_secs()));
                };
                match more {
                    Ok(()) if share.covers(down.held) => continue,
                    Ok(()) => return Err(denials::too_many("the sandbox has too many unfinished answers").into()),
                    Err(denied @ CopyError::Denied(_)) => return Err(denied),
                    Err(CopyError::From | CopyError::To | CopyError::Malformed(_)) => {}
                }
                let nothing = down.held.is_empty() && !answered.load(Ordering::Relaxed);
                return if nothing { Ok(Outcome::Nothing) } else { unusable(answered, "its answer breaks off".into()) };
            }
            Err(error) => return unusable(answered, error.to_string()),
        };
        if by_proxy && response.status == 407 {
            // The client has no login for a proxy that is not its own.
            return unusable(answered, "the upstream proxy answers 407".into());
        }
        let plan = match plan(&response, proxy_request) {
            Ok(plan) => plan,
            Err(error) => return unusable(answered, error.to_string()),
        };
        let length = response.length;
        down.held.consume(length);
        down.held.shrink();
        (before, started) = (0, None);
        if let Some(head) = &plan.head {
            answered.store(true, Ordering::Relaxed);
            down.write(head).await?;
        }
        match plan.then {
            Then::NextHead if interim < MAX_INTERIM && interim_bytes + length <= MAX_INTERIM_BYTES => {
                interim += 1;
                interim_bytes += length;
            }
            Then::NextHead => return Err(CopyError::From),
            Then::Tunnel => return Ok(Outcome::Switched),
            Then::Body { body, plain, client, server } => {
                drop((plan.head, share));
                // If the body breaks off in the middle, the client must not take it for whole.
                down.copy(body, plain).await?;
                return Ok(Outcome::Done { client, server });
            }
        }
    }
}

fn unusable(answered: &AtomicBool, why: String) -> Result<Outcome, CopyError> {
    if answered.load(Ordering::Relaxed) { Err(CopyError::From) } else { Ok(Outcome::BadServer(why)) }
}

/// Head for the client and next step after one response head.
struct Plan {
    head: Option<Vec<u8>>,
    then: Then,
}

enum Then {
    NextHead,
    Tunnel,
    Body { body: Body, plain: bool, client: bool, server: bool },
}

fn plan(response: &Response<'_>, proxy_request: &Forward) -> Result<Plan, HeadError> {
    let body = response_body(response, &proxy_request.method)?;
    let kept = response_fields(response);
    let mut head = Vec::with_capacity(response.length + 64);
    head.extend_from_slice(format!("HTTP/1.1 {} ", response.status).as_bytes());
    // The reason says nothing that the status does not say (RFC 9112, 4); clients print it. Bytes beyond ASCII are C1
    // control characters in some encodings.
    head.extend(response.reason.iter().filter(|byte| (0x20..0x7f).contains(*byte)));
    head.extend_from_slice(b"\r\n");
    for field in &kept.fields {
        put(&mut head, field.name, field.value);
    }
    if response.status == 101 {
        if !(proxy_request.websocket && kept.websocket) {
            return Err(HeadError::Malformed("it switches to a protocol that was not asked for"));
        }
        put(&mut head, b"Connection", b"Upgrade");
        put(&mut head, b"Upgrade", b"websocket");
        head.extend_from_slice(b"\r\n");
        return Ok(Plan { head: Some(head), then: Then::Tunnel });
    }
    if response.status < 200 {
        head.extend_from_slice(b"\r\n");
        // HTTP/1.0 knows no interim answers.
        return Ok(Plan { head: (proxy_request.minor == 1).then_some(head), then: Then::NextHead });
    }
    let plain = body == Body::Chunked && proxy_request.minor == 0;
    let client = !proxy_request.close && body != Body::UntilClose && !plain;
    match body {
        Body::Length(length) => put(&mut head, b"Content-Length", length.to_string().as_bytes()),
        Body::Chunked if !plain => put(&mut head, b"Transfer-Encoding", b"chunked"),
        Body::Chunked | Body::UntilClose => {}
        // A GET would have had this length. An answer 204 has none (RFC 9110, 8.6), and a length that is not exactly a
        // number is left out.
        Body::None => {
            let has_coding = response.fields.iter().any(|field| field.is("transfer-encoding"));
            if let Ok(Some(length)) = content_length(&response.fields)
                && response.status != 204
                && !has_coding
            {
                put(&mut head, b"Content-Length", length.to_string().as_bytes());
            }
        }
    }
    if !client {
        put(&mut head, b"Connection", b"close");
    } else if proxy_request.minor == 0 {
        put(&mut head, b"Connection", b"keep-alive");
    }
    head.extend_from_slice(b"\r\n");
    let server = !kept.close && body != Body::UntilClose;
    Ok(Plan { head: Some(head), then: Then::Body { body, plain, client, server } })
}
