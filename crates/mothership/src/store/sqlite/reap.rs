//! Claims and leases that have passed.

use super::apply::{EndFacts, apply};
use super::report::OVERRUN_MS;
use super::work::{self, COLUMNS, LEASED, Work, complete};
use crate::store::error::StoreError;
use crate::store::types::Reaped;
use nexus_model::directive::Event;
use rusqlite::{Connection, params};

/// A lease ends for the server so long after it ended for the daemon.
const GRACE_MS: i64 = 5_000;
/// Time that a daemon has to confirm a request to end.
const CONFIRM_MS: i64 = 60_000;
/// Largest number of directives of one round.
const MAX_ROUND: usize = 200;

/// Ends or queues again what no daemon reports any more.
pub fn reap(connection: &Connection, epoch: u64, now: i64) -> Result<Reaped, StoreError> {
    let mut reaped = Reaped::default();
    for (work, event) in due(connection, epoch, now)? {
        // A refusal means that the row changed since it was read, which one transaction excludes.
        if let Ok(effect) = apply(connection, &work, &event, now, EndFacts::default())? {
            reaped.changed.push(work.directive());
            reaped.lanes.extend(effect.lane);
        }
    }
    Ok(reaped)
}

/// Moves all leases by a jump of the clock, so that none ends because of it.
pub fn shift_leases(connection: &Connection, by: i64) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE work SET lease_until = lease_until + ?1, visible_at = visible_at + ?1, deadline = deadline + ?1,
           cancel_at = cancel_at + ?1, queue_until = queue_until + ?1",
        params![by],
    )?;
    connection.execute("UPDATE presence SET last_seen = last_seen + ?1", params![by])?;
    Ok(())
}

fn due(connection: &Connection, epoch: u64, now: i64) -> Result<Vec<(Work, Event)>, StoreError> {
    let mut found = Vec::new();
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS}, lease_until, visible_at FROM work WHERE phase >= 2"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (lease_until, visible_at): (Option<i64>, Option<i64>) = (row.get("lease_until")?, row.get("visible_at")?);
        let work = complete(work::read(row)?)?;
        if let Some(event) = verdict(&work, lease_until, visible_at, epoch, now) {
            found.push((work, event));
        }
        if found.len() >= MAX_ROUND {
            return Ok(found);
        }
    }
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM work WHERE queue_until <= ?1 AND phase < 2 LIMIT ?2"))?;
    let mut rows = statement.query(params![now, MAX_ROUND as i64])?;
    while let Some(row) = rows.next()? {
        found.push((complete(work::read(row)?)?, Event::QueueTimeout));
    }
    Ok(found)
}

/// Returns the event that time has brought about.
fn verdict(work: &Work, lease_until: Option<i64>, visible_at: Option<i64>, epoch: u64, now: i64) -> Option<Event> {
    let fence = work.fence;
    let next = fence.next(epoch)?;
    if work.phase == LEASED && visible_at.is_some_and(|at| now >= at) {
        return Some(Event::Returned { fence });
    }
    if work.deadline.is_some_and(|deadline| now >= deadline + OVERRUN_MS) {
        return Some(Event::Overrun { fence, next });
    }
    let ended = lease_until.is_none_or(|until| now >= until + GRACE_MS);
    let unconfirmed = work.cancel_at.is_some_and(|at| now >= at + CONFIRM_MS);
    match (ended, unconfirmed && work.phase != LEASED) {
        (true, true) => Some(Event::CancelUnconfirmed { fence, next }),
        (true, false) => Some(Event::LeaseLost { fence }),
        (false, _) => None,
    }
}

#[cfg(test)]
#[path = "reap_tests.rs"]
mod tests;
