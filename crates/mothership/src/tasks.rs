//! Tasks in the background: taking back what has passed.

use crate::app::{Shared, stopped};
use crate::decide::{Drift, Reading, drift};
use crate::metrics::{Task, add};
use crate::store::StoreError;
use crate::store::jump::Jump;
use crate::store::postgres::Hints;
use crate::store::types::Reaped;
use std::sync::atomic::Ordering;

/// Takes the hints of other servers until the server stops.
pub async fn receive(app: Shared, mut hints: Hints) {
    let mut stopping = app.stopping.clone();
    loop {
        tokio::select! {
            hint = hints.recv() => match hint {
                Some(hint) => { app.deliver(hint); }
                None => return,
            },
            () = stopped(&mut stopping) => return,
        }
    }
}

/// Runs the reaper until the server stops. Of the servers that share a database one alone takes back, and all watch the clock.
/// With a store that is not new, nothing is taken back for one life of a lease: no daemon could renew a lease or report an end
/// while no server ran, and the store does not know for how long that was.
pub async fn reaper(app: Shared, is_new: bool) {
    let mut stopping = app.stopping.clone();
    let mut before = reading(&app);
    let mut quiet_until = if is_new { before.boot } else { before.boot + app.config.times.ttl_ms };
    let mut is_first = true;
    let head_every = i64::try_from(app.config.head_every.as_millis()).unwrap_or(i64::MAX);
    let mut head_at = before.boot.saturating_add(head_every);
    loop {
        tokio::select! {
            () = tokio::time::sleep(app.config.reap_every) => {}
            () = stopped(&mut stopping) => return,
        }
        // The clock of the database is read before it is compared. Without the database there is nothing to do.
        let leads = match app.store.shared() {
            None => true,
            Some(database) => {
                let asked = database.round(app.config.clock.clone()).await;
                let Some(leads) = app.metrics.of(Task::Leases, asked) else {
                    app.metrics.leads.store(0, Ordering::Relaxed);
                    // Nothing is sealed either.
                    app.metrics.of(Task::Audit, Err::<(), _>(()));
                    quiet_until = app.config.clock.boot() + app.config.times.ttl_ms;
                    continue;
                };
                leads
            }
        };
        app.metrics.leads.store(u64::from(leads), Ordering::Relaxed);
        // Another server serves, so there was no outage.
        if std::mem::take(&mut is_first) && !leads {
            quiet_until = before.boot;
        }
        let now = reading(&app);
        match drift(before, now) {
            Drift::None => {}
            Drift::Jumped(by) => {
                // The leases move with the clock, so that none ends because of the jump. A failure is tried again.
                let jump = Jump::found(by, now.wall, now.boot - before.boot);
                if leads && app.metrics.of(Task::Leases, app.store.shift_leases(jump).await).is_none() {
                    continue;
                }
                // A lease that was renewed between the jump and this round has moved twice: its daemon renews it again.
                quiet_until = quiet_until.max(now.boot + app.config.times.ttl_ms);
            }
            // Daemons could not report either: each gets one life of a lease to come back.
            Drift::Outage => quiet_until = now.boot + app.config.times.ttl_ms,
        }
        before = now;
        if leads {
            // No answer and no use counts after the end of an approval, also when this failed: the next round repeats it.
            if let Some(settled) = app.metrics.of(Task::Leases, app.store.settle_approvals(now.wall).await) {
                tell(&app, &settled);
            }
            // A failure is met again by the next round, and by every reader of the chain.
            app.metrics.of(Task::Audit, app.store.seal_audit().await);
            if now.boot >= head_at {
                let heads = std::sync::Arc::clone(&app.heads);
                let noted = app.store.note_heads(move |head| heads.sign(head, now.wall), now.wall).await;
                if app.metrics.of(Task::Heads, noted).is_some() {
                    head_at = now.boot.saturating_add(head_every);
                }
            }
        }
        if now.boot < quiet_until || !leads {
            continue;
        }
        // A failed round is repeated by the next one; requests report the state of the store.
        if app.metrics.of(Task::Leases, reap(&app, now.wall).await).is_none() {
            quiet_until = now.boot + app.config.times.ttl_ms;
        }
    }
}

fn reading(app: &Shared) -> Reading {
    Reading { wall: app.now(), boot: app.config.clock.boot() }
}

async fn reap(app: &Shared, now: i64) -> Result<(), StoreError> {
    let reaped = app.store.reap(now).await?;
    add(&app.metrics.reaped, reaped.changed.len() as u64);
    tell(app, &reaped);
    Ok(())
}

fn tell(app: &Shared, reaped: &Reaped) {
    for id in &reaped.changed {
        app.changed(*id);
    }
    app.wake(&reaped.lanes);
}
