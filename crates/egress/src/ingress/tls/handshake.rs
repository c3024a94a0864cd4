//! Checks the name in every ClientHello that a client sends in clear.
//!
//! ```text
//!  client: ClientHello ──checked──▶ server
//!          20, 21, 23 ─────────────▶        (early data, compatibility records)
//!          22 ──waits──▶ the server's answer ─┬─ HelloRetryRequest ─▶ a second ClientHello ──checked──▶ server
//!                                             └─ anything else ─────▶ the tunnel goes on; nothing more comes in clear
//! ```
//!
//! A server that got no usable key share asks for a second ClientHello. TLS forbids another name in it, but OpenSSL
//! serves the second one. A client may send that hello before the server has asked, so it waits here for the server's
//! answer.

use crate::decide::denials;
use crate::decide::guard::{ConnectionGuard, Flow};
use crate::ingress::stop::Stop;
use crate::ingress::tls::hello::{self, Seen, ServerAnswer};
use crate::memory::bounds::Share;
use crate::memory::inbuf::InBuf;
use nexus_policy::net::{Hello, Host, check_second_sni, check_sni};
use std::sync::{Mutex, PoisonError};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Maximum number of bytes of a server's answer that are kept until its random is complete. The check treats a longer
/// answer as a request for a second ClientHello.
const MAX_ANSWER: usize = 4 * 1024;

/// Kinds of record that may come between two ClientHellos (RFC 8446, 5.1 and D.4).
const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// Answer of the server to the first ClientHello, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    received: Mutex<ReadHello>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct ReadHello {
    bytes: Vec<u8>,
    retry: Option<bool>,
}

impl Answer {
    /// Takes the next bytes of the server; an empty slice is the end. The client must get them afterwards.
    pub(crate) fn recv(&self, bytes: &[u8]) {
        let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        if received.retry.is_some() {
            return;
        }
        received.bytes.extend(bytes.iter().take(MAX_ANSWER));
        received.retry = match hello::read_answer(&received.bytes) {
            ServerAnswer::Retry => Some(true),
            ServerAnswer::Other => Some(false),
            ServerAnswer::More if bytes.is_empty() => Some(false),
            ServerAnswer::More => (received.bytes.len() >= MAX_ANSWER).then_some(true),
        };
        if received.retry.is_some() {
            received.bytes = Vec::new();
            self.wake.notify_waiters();
        }
    }

    fn retry(&self) -> Option<bool> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).retry
    }

    /// Waits until it is known whether the server asks for a second ClientHello; returns true if it does.
    async fn until_known(&self) -> bool {
        loop {
            let woken = self.wake.notified();
            if let Some(retry) = self.retry() {
                return retry;
            }
            woken.await;
        }
    }
}

/// Holds the client's first bytes until they are a ClientHello that names the allowed host, or may pass without. Then
/// passes records on until no further ClientHello can come in clear. The bytes left in `held` were not passed on.
pub(crate) async fn checked(
    from: &mut ReadHalf<'_>,
    held: &mut InBuf,
    to: &mut WriteHalf<'_>,
    guard: &ConnectionGuard,
    answer: &Answer,
) -> Result<(), Stop> {
    let mut share = guard.shared.heads.share();
    let (first, length) = next_hello(from, held, guard, &mut share).await?;
    guard.ask(|policy| check_sni(policy, guard.permit(), named(&first), guard.shared.clock.now()))?;
    let asked = match &first {
        Seen::Sni(name) => Host::parse_bytes(name).ok(),
        Seen::NoSni | Seen::NotTls | Seen::More => None,
    };
    guard.note_asked(asked.as_ref());
    if asked.as_ref() != Some(guard.permit().host()) {
        // The mark comes before the question: what is learned from here on finds the mark.
        guard.entry.stay_unnamed();
        guard.evaluate()?;
    }
    if matches!(first, Seen::NotTls | Seen::More) {
        // A server may take these bytes for a hello and read a host that is not seen here.
        if hello::begins_as_tls(held.bytes()) {
            return Err(Stop::Denied(denials::malformed("the ClientHello is too long, too late or malformed")));
        }
        return Ok(());
    }
    pass(from, held, to, guard, length).await?;
    held.shrink();
    drop(share);
    loop {
        let Some((kind, length)) = next_record(from, held).await? else { return Ok(()) };
        if answer.retry() == Some(false) {
            return Ok(());
        }
        match kind {
            CHANGE_CIPHER | ALERT | DATA => pass(from, held, to, guard, 5 + length).await?,
            HANDSHAKE => {
                if !answer.until_known().await {
                    return Ok(());
                }
                let mut share = guard.shared.heads.share();
                let (second, length) = next_hello(from, held, guard, &mut share).await?;
                check_second_sni(guard.permit(), named(&first), named(&second))?;
                pass(from, held, to, guard, length).await?;
                // A server asks for a second ClientHello only once.
                return Ok(());
            }
            _ => {
                return Err(check_second_sni(guard.permit(), named(&first), Hello::NotTls)
                    .map_or_else(Stop::Denied, |()| Stop::Broken));
            }
        }
    }
}

fn named(seen: &Seen) -> Hello<'_> {
    match seen {
        Seen::Sni(name) => Hello::Sni(name),
        Seen::NoSni => Hello::NoSni,
        Seen::More | Seen::NotTls => Hello::NotTls,
    }
}

/// Reads until `held` begins with a whole ClientHello or with something else, or until the time is over.
async fn next_hello(
    from: &mut ReadHalf<'_>,
    held: &mut InBuf,
    guard: &ConnectionGuard,
    share: &mut Share,
) -> Result<(Seen, usize), Stop> {
    // Silence is not another protocol: where one may pass, the bytes after the silence are checked too.
    let now = || guard.shared.clock.now();
    let may_pass = || guard.ask(|policy| check_sni(policy, guard.permit(), Hello::NotTls, now())).is_ok();
    if held.is_empty() && may_pass() && held.fill(from).await? == 0 {
        return Ok((Seen::NotTls, 0));
    }
    let whole = async {
        loop {
            match hello::read_measured(held.bytes()) {
                (Seen::More, _) => {}
                seen => return Ok(seen),
            }
            if held.fill(from).await? == 0 {
                return Ok((Seen::NotTls, 0));
            }
            if !share.covers(held) {
                return Err(Stop::Denied(denials::too_many("the sandbox has too many unfinished TLS handshakes")));
            }
        }
    };
    match timeout(guard.shared.limits.hello_time, whole).await {
        Ok(seen) => Ok(seen?),
        Err(_) => Ok((Seen::NotTls, 0)),
    }
}

/// Reads until `held` begins with the header of a record; `None` is the end of the stream.
async fn next_record(from: &mut ReadHalf<'_>, held: &mut InBuf) -> Result<Option<(u8, usize)>, Stop> {
    loop {
        if let Some(record) = hello::record(held.bytes()) {
            return Ok(Some(record));
        }
        if held.fill(from).await? == 0 {
            return Ok(None);
        }
    }
}

/// Passes the next `count` bytes on as they come; fewer if the client ends before.
async fn pass(
    from: &mut ReadHalf<'_>,
    held: &mut InBuf,
    to: &mut WriteHalf<'_>,
    guard: &ConnectionGuard,
    mut count: usize,
) -> Result<(), Stop> {
    while count > 0 {
        if held.is_empty() && held.fill(from).await? == 0 {
            return Ok(());
        }
        let part = held.bytes().get(..count).unwrap_or(held.bytes());
        guard.count(Flow::Up, part.len())?;
        to.write_all(part).await?;
        let done = part.len();
        held.consume(done);
        count -= done;
    }
    held.rest();
    Ok(())
}
