//! Server-sent events of a directive: a cursor over the store. Changes in memory are a hint to look, and a timer looks anyway.
//!
//! ```text
//!  change or timer ─▶ snapshot of the store ─▶ at most 16 events that wait ─▶ at most 64 KiB of the connection ─▶ client
//! ```
//! An event is the directive as it is now: a reader that falls behind misses none of its end. A client that takes nothing is cut
//! by its connection ([`crate::stall`]), and comes back with the id of the last event that it has. No producer waits for it.

use super::answer::{Answer, Problem};
use super::request::Context;
use crate::app::stopped;
use crate::metrics::add;
use crate::store::types::{Account, Snapshot};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use http_body::Frame;
use nexus_api::mothership::{EventId, EventKind};
use nexus_model::ids::DirectiveId;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context as Poller, Poll};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Instant, sleep_until};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events that wait for the connection of one reader.
const MAX_WAITING: usize = 16;

/// The last event that a reader knows.
#[derive(Clone, Copy)]
enum Known {
    /// The reader is new.
    Nothing,
    /// The reader names an event.
    Event(EventId),
    /// The reader names something else.
    Unreadable,
}

/// Body of a stream.
struct Events(mpsc::Receiver<Bytes>);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, poller: &mut Poller<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(poller).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Follows a directive until its end is known: one whose claim was lost in a commit may end otherwise when its territory is back.
pub async fn stream(context: Context) -> Result<Answer, Problem> {
    let account = context.account()?;
    let id: DirectiveId = context.id("directive_id")?;
    let last = match context.header("last-event-id") {
        None | Some("") => Known::Nothing,
        Some(text) => text.parse().map_or(Known::Unreadable, Known::Event),
    };
    let most = context.app.config.streams_per_key;
    let Some(place) = context.app.streams.take(account.key, most) else {
        return Err(Problem::too_many("The API key has as many event streams open as it may have.", 5));
    };
    // The receiver is made before the first look: no change is missed in between.
    let changes = context.app.changes.subscribe();
    let first = context.app.store.snapshot(account, id, context.app.now()).await?;
    let (pieces, body) = mpsc::channel(MAX_WAITING);
    tokio::spawn(async move {
        add(&context.app.metrics.streams, 1);
        follow(&context, account, id, last, first, changes, &pieces).await;
        context.app.metrics.streams.fetch_sub(1, Ordering::Relaxed);
        drop(place);
    });
    let mut answer = Answer::new(Body::new(Events(body)));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(answer)
}

fn event_id(snapshot: &Snapshot) -> EventId {
    EventId { attempt: snapshot.event.attempt, version: snapshot.version }
}

fn piece(kind: EventKind, snapshot: &Snapshot) -> Bytes {
    let data = serde_json::to_string(&snapshot.event).unwrap_or_default();
    Bytes::from(format!("id: {}\nevent: {}\ndata: {data}\n\n", event_id(snapshot), kind.name()))
}

/// Returns the kind of the event that leads from one snapshot to another.
fn kind(before: &Snapshot, now: &Snapshot) -> EventKind {
    let facts = |snapshot: &Snapshot| {
        let event = &snapshot.event;
        (event.state, event.attempt, event.cancel_requested, event.reason.clone())
    };
    if facts(before) == facts(now) { EventKind::Log } else { EventKind::State }
}

async fn follow(
    context: &Context,
    account: Account,
    id: DirectiveId,
    last: Known,
    first: Snapshot,
    mut changes: broadcast::Receiver<DirectiveId>,
    pieces: &mpsc::Sender<Bytes>,
) {
    let app = &context.app;
    let mut stopping = app.stopping.clone();
    let known = match last {
        // An id that this store has not written yet, or that is none: the reader starts again.
        Known::Unreadable => Some(EventKind::Reset),
        Known::Event(last) if last > event_id(&first) => Some(EventKind::Reset),
        Known::Event(last) if last == event_id(&first) => None,
        _ => Some(EventKind::State),
    };
    if let Some(kind) = known
        && pieces.send(piece(kind, &first)).await.is_err()
    {
        return;
    }
    let mut before = first;
    let mut quiet_until = Instant::now() + app.config.keep_alive;
    while !before.event.state.is_terminal() || before.may_change {
        let next_check = Instant::now() + LOOK_EVERY;
        loop {
            tokio::select! {
                change = changes.recv() => match change {
                    Ok(changed) if changed != id => {}
                    // Lagging means that a change of this directive may have been among the lost hints.
                    _ => break,
                },
                () = sleep_until(next_check) => break,
                () = pieces.closed() => return,
                () = stopped(&mut stopping) => {
                    // The reader connects again, perhaps to another replica.
                    drop(pieces.send(Bytes::from_static(b"retry: 500\n\n")).await);
                    return;
                }
            }
        }
        // The rights are looked at again: a key or a session that was deleted ends its streams.
        if !super::auth::is_still(context, account).await {
            return;
        }
        let Ok(now) = app.store.snapshot(account, id, app.now()).await else { return };
        if event_id(&now) != event_id(&before) {
            let kind = kind(&before, &now);
            if pieces.send(piece(kind, &now)).await.is_err() {
                return;
            }
            quiet_until = Instant::now() + app.config.keep_alive;
            before = now;
            continue;
        }
        // No report is taken after a day.
        before.may_change = now.may_change;
        if Instant::now() >= quiet_until {
            if pieces.send(Bytes::from_static(b": keep-alive\n\n")).await.is_err() {
                return;
            }
            quiet_until = Instant::now() + app.config.keep_alive;
        }
    }
}
