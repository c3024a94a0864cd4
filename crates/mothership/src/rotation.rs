//! The authorities of territories over time: a new one by command or by age, and the end of an old one.
//!
//! ```text
//!  each second, every server: read the store ─▶ others than known? ─▶ TLS of the listeners trusts them, the newest known one signs
//!  the leading server: something due? ─▶ store ─▶ (each server, a second later)
//! ```

use crate::app::{Shared, stopped};
use crate::decide::{Reading, RemovalGuard};
use crate::identity::{Authorities, AuthorityError};
use crate::metrics::Task;
use crate::store::postgres::Database;
use crate::store::{StoreError, change_authorities};
use crate::tidy::WATCHED_FROM;
use crate::tls::LiveTls;
use nexus_api::tls::TlsError;
use std::path::Path;
use std::sync::{Arc, PoisonError};

/// Reason why the authorities stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The authorities of the store cannot be used.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// No listener could trust them.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl RotationError {
    /// The stable code of the error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Store(error) => error.code(),
            Self::Authority(_) => "authority_failed",
            Self::Tls(_) => "listener_certificate",
        }
    }
}

/// Keeps the authorities of a server until it stops. After a jump of the clock no authority is removed for a day, as no file is: `last_seen`
/// is the latest sign of a territory before any listener of this server took one.
pub async fn keep(app: Shared, listeners: Vec<Arc<LiveTls>>, last_seen: Option<i64>) {
    let mut stopping = app.stopping.clone();
    let watched_from = WATCHED_FROM.min(app.config.certificate_life / 10).as_millis();
    let watched_from = app.config.clock.boot().saturating_add(i64::try_from(watched_from).unwrap_or(i64::MAX));
    let mut guard = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(app.config.reap_every) => {}
            () = stopped(&mut stopping) => return,
        }
        let now = Reading { wall: app.now(), boot: app.config.clock.boot() };
        let may_remove =
            now.boot >= watched_from && guard.get_or_insert_with(|| RemovalGuard::new(now, last_seen)).allows(now);
        // A failure is counted, and met again by the next round; the authorities that are known go on.
        app.metrics.of(Task::Authorities, round(&app, &listeners, may_remove).await);
    }
}

async fn round(app: &Shared, listeners: &[Arc<LiveTls>], may_remove: bool) -> Result<(), RotationError> {
    let stored = app.store.authorities().await?;
    let mut known = app.authorities();
    if stored != *known.texts() {
        known = Arc::new(Authorities::load(stored)?);
        // All listeners or none: settings that cannot be made leave the ones before.
        let made = listeners.iter().map(|tls| tls.prepare_trust(known.bundle())).collect::<Result<Vec<_>, _>>()?;
        for (tls, settings) in listeners.iter().zip(made) {
            tls.set(settings);
        }
        *app.authorities.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&known);
    }
    if app.store.leads()
        && let Some(due) = known.due(app.now(), app.config.certificate_life, may_remove)?
    {
        app.store.set_authorities(known.texts().clone(), due).await?;
    }
    Ok(())
}

/// Adds an authority of territories to a fleet, whose servers may run meanwhile. It signs when all of them know it; certificates of the
/// one before hold to their end.
pub fn rotate_authority(directory: &Path, database: Option<&Database>, now: i64) -> Result<(), RotationError> {
    change_authorities(directory, database, now, |texts| {
        let rotated = Authorities::load(texts).and_then(|known| known.rotated(now));
        rotated.map_err(|error| StoreError::Settings { why: error.to_string() })
    })?;
    Ok(())
}
