//! State that all requests of a server share.

use crate::blobs::Blobs;
use crate::config::Config;
use crate::decide::{Fullness, Policies, Windows};
use crate::identity::{Authorities, HeadKey, TokenKey};
use crate::lobby::Lobby;
use crate::metrics::Metrics;
use crate::rights::Rights;
use crate::store::Store;
use crate::store::postgres::{Hint, Postgres};
use crate::store::types::Lane;
use crate::streams::StreamCounts;
use nexus_model::ids::{DirectiveId, TerritoryId};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::{Notify, broadcast, watch};

/// Shared state. It holds nothing that another replica needs.
pub struct App {
    pub config: Config,
    pub store: Store,
    pub blobs: Blobs,
    /// Documents that count for accounts.
    pub policies: Arc<Policies>,
    /// Key of directive tokens.
    pub tokens: TokenKey,
    /// Key of cursors.
    pub cursors: Vec<u8>,
    /// Key that signs the heads of audit chains.
    pub heads: Arc<HeadKey>,
    /// Authorities of territories.
    pub authorities: RwLock<Arc<Authorities>>,
    /// Rights that the store has confirmed a moment ago.
    pub rights: Rights,
    pub lobby: Lobby,
    /// Directives that have changed, as a hint for event streams.
    pub changes: broadcast::Sender<DirectiveId>,
    /// Empty polls of each territory.
    pub empty_polls: Mutex<Windows<TerritoryId>>,
    /// Heartbeats of each directive.
    pub beats: Mutex<Windows<DirectiveId>>,
    pub metrics: Metrics,
    /// Open event streams of each key.
    pub streams: Arc<StreamCounts>,
    /// Wakes the tasks that remove and compact.
    pub tidy: Arc<Notify>,
    /// Becomes true when the server stops.
    pub stopping: watch::Receiver<bool>,
    /// Every listener is on loopback.
    pub loopback: bool,
    /// The last time at which there was no room for what a caller brought.
    pub fullness: Fullness,
}

/// Shared state behind a pointer.
pub type Shared = Arc<App>;

impl App {
    /// Time of the store: that of the database, where servers share one.
    pub fn now(&self) -> i64 {
        self.config.clock.wall() + self.store.shared().map_or(0, Postgres::offset)
    }

    /// Returns whether the server stops.
    pub fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Tells event streams that a directive has changed.
    pub fn changed(&self, id: DirectiveId) {
        self.deliver(Hint::Changed(id));
        self.store.publish(Hint::Changed(id));
    }

    /// Wakes what waits in this server for what a hint says; `false` when nothing does.
    pub fn deliver(&self, hint: Hint) -> bool {
        match hint {
            // An error means that no stream is open.
            Hint::Changed(id) => self.changes.send(id).is_ok(),
            Hint::Ready(lane) => self.lobby.wake(&lane),
            Hint::Rights | Hint::Anything => {
                self.rights.forget();
                self.lobby.wake_all()
            }
        }
    }

    /// Returns the authorities of territories.
    pub fn authorities(&self) -> Arc<Authorities> {
        Arc::clone(&self.authorities.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Something was revoked: no server goes on to trust what it knows, and polls that wait look again.
    pub fn revoked(&self) {
        self.deliver(Hint::Rights);
        self.store.publish(Hint::Rights);
    }

    /// Wakes polls for ready directives.
    pub fn wake<'a>(&self, lanes: impl IntoIterator<Item = &'a Lane>) {
        for lane in lanes {
            // A poll of this server takes the directive; else one of another server may.
            if !self.lobby.wake(lane) {
                self.store.publish(Hint::Ready(lane.clone()));
            }
        }
    }
}

/// Waits until the server stops.
pub async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the server is gone already.
    drop(stopping.wait_for(|stopping| *stopping).await);
}
