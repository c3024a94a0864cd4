//! Tasks in the background that remove what is old and put output into files, on a signal and a timer.
//!
//! ```text
//!  timer (5 min) or signal ─▶ compaction, one stream after the other ─▶ removal, batch after batch ─▶ files without rows
//! ```
//! After a jump of the clock nothing is removed for a day: what is old by a wrong clock is not old. A failure ends the round; the next
//! one begins afresh. Requests never wait for a round: each step is a transaction of its own.

use crate::app::{Shared, stopped};
use crate::blobs::BlobId;
use crate::decide::{Reading, RemovalGuard};
use crate::metrics::{Task, add};
use crate::store::StoreError;
use crate::store::types::Compaction;

/// Steps of one round, at most: a long list is worked off over several rounds.
const MAX_STEPS: usize = 1_000;

/// Time after the start from which the clock is watched: that of the database is known by then.
pub const WATCHED_FROM: std::time::Duration = std::time::Duration::from_secs(10);

/// Runs rounds until the server stops. `last_seen` is the latest sign of a territory before any listener of this server took one.
pub async fn run(app: Shared, last_seen: Option<i64>) {
    let mut stopping = app.stopping.clone();
    let mut guard = None;
    loop {
        let pause = if guard.is_none() { WATCHED_FROM.min(app.config.tidy_every) } else { app.config.tidy_every };
        let is_round = tokio::select! {
            () = tokio::time::sleep(pause) => guard.is_some(),
            () = app.tidy.notified() => true,
            () = stopped(&mut stopping) => return,
        };
        // Each server watches the clock, also while another one leads.
        let now = Reading { wall: app.now(), boot: app.config.clock.boot() };
        let is_allowed = guard.get_or_insert_with(|| RemovalGuard::new(now, last_seen)).allows(now);
        if !app.store.leads() || !is_round {
            continue;
        }
        // What failed is counted, and tried again in the next round.
        app.metrics.of(Task::Tidy, compact(&app).await);
        if !is_allowed {
            continue;
        }
        app.metrics.of(Task::Tidy, remove(&app, now.wall).await);
        app.metrics.of(Task::Tidy, sweep_files(&app).await);
    }
}

async fn compact(app: &Shared) -> Result<(), StoreError> {
    for _ in 0..MAX_STEPS {
        if app.is_stopping() {
            return Ok(());
        }
        let Some(directive) = app.store.to_compact(app.now()).await? else { return Ok(()) };
        match app.store.stream_to_compact(directive).await? {
            Some(stream) => one(app, stream).await?,
            None => app.store.compacted(directive).await?,
        }
    }
    Ok(())
}

/// Writes the file first, and then lets it stand for its chunks.
async fn one(app: &Shared, mut stream: Compaction) -> Result<(), StoreError> {
    let blob = BlobId { account: stream.account, id: stream.id };
    app.blobs.write(blob, 0, std::mem::take(&mut stream.bytes)).await?;
    if app.store.swap_log(stream, app.now()).await? {
        add(&app.metrics.compacted, 1);
        return Ok(());
    }
    // A chunk came meanwhile: the next look reads it too.
    app.blobs.remove(blob).await
}

/// Removes what is old at `now`, a time that was checked.
async fn remove(app: &Shared, now: i64) -> Result<(), StoreError> {
    for _ in 0..MAX_STEPS {
        if app.is_stopping() {
            return Ok(());
        }
        let swept = app.store.sweep(app.config.retention, now).await?;
        add(&app.metrics.removed, swept.directives);
        for (account, id) in swept.blobs {
            app.blobs.remove(BlobId { account, id }).await?;
        }
        if !swept.more {
            return Ok(());
        }
    }
    Ok(())
}

/// Removes files that have had no row for a day: a server that died between the two left them.
async fn sweep_files(app: &Shared) -> Result<(), StoreError> {
    let old = app.blobs.older_than(FILE_REST).await?;
    let known = app.store.known_blobs(old.iter().map(|blob| blob.id).collect()).await?;
    for (blob, _) in old.into_iter().zip(known).filter(|(_, known)| !known) {
        app.blobs.remove(blob).await?;
    }
    Ok(())
}

/// Age after which a file without a row is removed.
const FILE_REST: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
