//! Hints between the servers of one database, by LISTEN and NOTIFY: a directive is ready, a directive has changed. A hint may be
//! lost, so that a poll or a stream that waits for one looks by a timer too.
//!
//! ```text
//!  after a commit ─▶ publisher: gathered for 5 ms ─▶ NOTIFY in a transaction of its own ─▶ listener of each other server
//! ```
//! A NOTIFY within the transaction would hold one lock of the whole database until the commit is on the disk.

use super::client::Client;
use super::database::Database;
use crate::store::error::StoreError;
use crate::store::types::Lane;
use crate::store::value::params;
use nexus_model::ids::DirectiveId;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::mpsc;
use uuid::Uuid;

/// Hints that wait to be sent, at most. More are dropped: the timers stand in for them.
const MAX_WAITING: usize = 10_000;
const GATHER: Duration = Duration::from_millis(5);
/// A payload has fewer than 8,000 bytes.
const MAX_PAYLOAD: usize = 7_000;
const RETRY: Duration = Duration::from_secs(1);
/// A listener that hears nothing asks whether the server is still there.
const QUIET_ROUNDS: u32 = 15;

/// News from one server to the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hint {
    /// A directive of the lane is ready.
    Ready(Lane),
    /// The directive has changed.
    Changed(DirectiveId),
    /// Rights of a territory or of a key were taken.
    Rights,
    /// Hints may have been lost.
    Anything,
}

/// Hints of other servers.
pub type Hints = mpsc::UnboundedReceiver<Hint>;

/// Content of one notification.
#[derive(Serialize, Deserialize)]
struct Payload {
    /// The server that sends it.
    from: Uuid,
    hints: Vec<Hint>,
}

/// Sends hints to the other servers.
pub struct Publisher {
    waiting: SyncSender<Hint>,
}

impl Publisher {
    /// Starts the thread, which ends with this value. `me` names the server, which ignores its own notifications.
    pub fn start(database: &Database, me: Uuid) -> Result<Self, StoreError> {
        let (waiting, hints) = sync_channel(MAX_WAITING);
        let database = database.clone();
        thread("nexus-publish", move || publish_all(&database, me, &hints))?;
        Ok(Self { waiting })
    }

    pub fn publish(&self, hint: Hint) {
        // A full queue loses the hint, and no more.
        drop(self.waiting.try_send(hint));
    }
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    started.map(drop).map_err(|error| StoreError::Settings { why: format!("a thread did not start: {error}") })
}

fn publish_all(database: &Database, me: Uuid, hints: &Receiver<Hint>) {
    let mut session: Option<RefCell<Client>> = None;
    while let Ok(first) = hints.recv() {
        std::thread::sleep(GATHER);
        let waiting: Vec<Hint> = std::iter::once(first).chain(hints.try_iter()).collect();
        for payload in payloads(me, &waiting) {
            if session.is_none() {
                session = Client::open(database).ok().and_then(|mut client| {
                    // Nothing is lost when a hint is.
                    client.batch("SET synchronous_commit = off").is_ok().then(|| RefCell::new(client))
                });
            }
            let Some(open) = &session else { break };
            let sent = open.borrow_mut().run("SELECT TRUE FROM pg_notify('nexus', ?1)", params![payload]);
            if sent.is_err() {
                session = None;
            }
        }
    }
}

/// Puts hints into few payloads, each hint once. A ready directive is sent as often as there are such directives.
fn payloads(me: Uuid, hints: &[Hint]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let (mut all, mut here, mut size) = (Vec::new(), Vec::new(), 0);
    let text = |hints: &[Hint]| serde_json::to_string(&Payload { from: me, hints: hints.to_vec() }).ok();
    for hint in hints {
        let length = match hint {
            Hint::Changed(id) if !seen.insert(*id) => continue,
            _ => serde_json::to_string(hint).map_or(MAX_PAYLOAD, |text| text.len() + 1),
        };
        // Demands that fill a notification alone are sent as anything.
        let (hint, length) = if length >= MAX_PAYLOAD - 100 { (Hint::Anything, 20) } else { (hint.clone(), length) };
        if size + length > MAX_PAYLOAD - 100 {
            all.extend(text(&std::mem::take(&mut here)));
            size = 0;
        }
        size += length;
        here.push(hint);
    }
    if !here.is_empty() {
        all.extend(text(&here));
    }
    all
}

/// Starts the thread that listens. It ends when the receiver is dropped.
pub fn listen(database: &Database, me: Uuid) -> Result<Hints, StoreError> {
    let (hints, receiver) = mpsc::unbounded_channel();
    let database = database.clone();
    thread("nexus-listen", move || {
        while !hints.is_closed() {
            // An error ends the session; the next one begins with a look at everything. Without LISTEN, as behind a pooler of
            // transactions, the timers remain.
            drop(listen_once(&database, me, &hints));
            std::thread::sleep(RETRY);
        }
    })?;
    Ok(receiver)
}

fn listen_once(database: &Database, me: Uuid, hints: &mpsc::UnboundedSender<Hint>) -> Result<(), StoreError> {
    let mut client = Client::open(database)?;
    client.batch("LISTEN nexus")?;
    drop(hints.send(Hint::Anything));
    let mut quiet = 0;
    while !hints.is_closed() {
        let Some(payload) = client.notification(RETRY)? else {
            quiet += 1;
            if quiet % QUIET_ROUNDS == 0 {
                client.batch("SELECT")?;
            }
            continue;
        };
        let payload =
            serde_json::from_str(&payload).unwrap_or(Payload { from: Uuid::nil(), hints: vec![Hint::Anything] });
        if payload.from != me {
            payload.hints.into_iter().for_each(|hint| drop(hints.send(hint)));
        }
    }
    Ok(())
}
