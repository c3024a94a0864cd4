//! Passes bytes in both directions until both ends are done, or something ends the tunnel.
//!
//! ```text
//!  client ──(each ClientHello: held until its name was checked)──▶ upstream   counted, within the budget
//!  client ◀────────────────── at once ─────────────────────── upstream     counted, within the budget
//!     an end of one direction is passed on, the other direction goes on (half-close)
//!     cut (reload, expiry, budget, TLS name) ──▶ both get a reset
//! ```
//!
//! The upstream's bytes flow while the hello is awaited, so that protocols in which the server sends first do not
//! deadlock when a rule marks them as TLS by mistake: the client sees the server's greeting and then the reset.

use crate::decide::client_gone;
use crate::decide::guard::{ConnectionGuard, Flow};
use crate::ingress::stop::Stop;
use crate::ingress::tls::handshake::{self, Answer};
use crate::memory::buffers::SMALL;
use crate::memory::inbuf::InBuf;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Number of reads in a row that filled a small buffer before a large one is worth it.
const BUSY: u32 = 4;

/// Two connected ends, with the bytes that were read from each and not used. The upstream's bytes are counted already.
pub(crate) struct Ends<'a> {
    pub(crate) client: &'a mut TcpStream,
    pub(crate) upstream: &'a mut TcpStream,
    pub(crate) from_client: InBuf,
    pub(crate) from_upstream: InBuf,
}

/// The part of a connection that came before its tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// No part of the connection was read yet: a ClientHello is checked if the permit expects one.
    Unseen,
    /// A request that named exactly the host of the permit.
    Named,
    /// A request that named another host.
    NamedAnother,
}

/// Runs a tunnel to its end; `http::carry` keeps other connections away.
pub(crate) async fn run(ends: Ends<'_>, guard: &ConnectionGuard, beginning: Beginning) {
    let Ends { client, upstream, mut from_client, mut from_upstream } = ends;
    let inspects = beginning == Beginning::Unseen && guard.permit().expects_tls();
    // The marks come before the policy and the facts: either a change sees them, or this function sees the change.
    guard.entry.close_eyes();
    if !inspects && beginning != Beginning::Named {
        guard.entry.stay_unnamed();
    }
    if let Err(why) = guard.evaluate() {
        guard.entry.cut(why);
    }
    let stop = {
        let (mut client_read, mut client_write) = client.split();
        let (mut upstream_read, mut upstream_write) = upstream.split();
        let answer = inspects.then(Answer::default);
        let up = async {
            if let Some(answer) = &answer {
                handshake::checked(&mut client_read, &mut from_client, &mut upstream_write, guard, answer).await?;
            }
            one_way(&mut client_read, from_client, &mut upstream_write, guard, Flow::Up, None).await
        };
        let down = async {
            let early = std::mem::take(&mut from_upstream);
            one_way(&mut upstream_read, early, &mut client_write, guard, Flow::Down, answer.as_ref()).await
        };
        tokio::select! {
            biased;
            ended = async { tokio::try_join!(up, down) } => ended.err(),
            why = guard.entry.until_cut() => Some(Stop::Denied(why)),
            over = guard.until_over() => Some(over.map_or(Stop::Broken, Stop::Denied)),
        }
    };
    match stop {
        None => {}
        Some(Stop::Denied(why)) => {
            guard.entry.cut(why);
            reset(client);
            reset(upstream);
        }
        Some(Stop::Broken) => {
            reset(client);
            reset(upstream);
        }
    }
}

/// Makes the following close a reset: the other side must not take a cut stream for a finished one.
pub(crate) fn reset(stream: &TcpStream) {
    // The call fails only on a socket that is gone already, and the close follows in any case.
    if let Err(error) = stream.set_zero_linger() {
        drop(error);
    }
}

async fn one_way(
    from: &mut ReadHalf<'_>,
    mut early: InBuf,
    to: &mut WriteHalf<'_>,
    guard: &ConnectionGuard,
    flow: Flow,
    answer: Option<&Answer>,
) -> Result<(), Stop> {
    if !early.is_empty() {
        if let Some(answer) = answer {
            answer.recv(early.bytes());
        }
        if flow == Flow::Up {
            guard.count(flow, early.bytes().len())?;
        }
        to.write_all(&early.take()).await?;
    }
    drop(early);
    let mut full = 0;
    loop {
        from.readable().await?;
        // The buffer is leased only now: an idle tunnel has no buffer.
        let mut buffer = guard.shared.buffers.lend(full >= BUSY);
        let Some(count) = ready_bytes(from, &mut buffer).await? else { continue };
        if let Some(answer) = answer {
            answer.recv(buffer.get(..count).unwrap_or_default());
        }
        if count == 0 {
            // The close that follows at once reports the second end.
            if !guard.half_close() {
                client_gone::ask(from.as_ref())?;
                to.shutdown().await?;
            }
            return Ok(());
        }
        guard.count(flow, count)?;
        full = if count >= SMALL { full + 1 } else { 0 };
        to.write_all(&buffer[..count]).await?;
    }
}

/// Reads what `readable` promised; `None` if there is nothing after all.
///
/// A task that has worked for too long without a pause also gets nothing (tokio's cooperative budget). It must pause
/// then: `readable` alone would report readiness for ever, and one busy tunnel would keep all others from running.
pub(crate) async fn ready_bytes(from: &mut ReadHalf<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    let read = std::future::poll_fn(|context| {
        let mut into = ReadBuf::new(buffer);
        match Pin::new(&mut *from).poll_read(context, &mut into) {
            Poll::Ready(Ok(())) => Poll::Ready(Ok(Some(into.filled().len()))),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Ready(Ok(None)),
        }
    })
    .await?;
    if read.is_none() {
        tokio::task::yield_now().await;
    }
    Ok(read)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test is the client")]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_task_that_reads_without_end_pauses_and_goes_on() {
        const BYTES: usize = 1000;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.write_all(&[7; BYTES]).unwrap();
        receiver.set_nonblocking(true).unwrap();
        runtime.block_on(async {
            let mut receiver = TcpStream::from_std(receiver).unwrap();
            let (mut from, _) = receiver.split();
            let (mut got, mut nothing) = (0, 0);
            while got < BYTES {
                from.readable().await.unwrap();
                match ready_bytes(&mut from, &mut [0]).await.unwrap() {
                    Some(count) => got += count,
                    None => nothing += 1,
                }
                assert!(nothing < BYTES, "it never got to go on, after {got} bytes");
            }
        });
    }
}
