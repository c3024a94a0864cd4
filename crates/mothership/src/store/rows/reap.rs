//! Ends claims and leases that have passed; `decide::ended_by_time` says which.

use super::apply::{Effect, EndFacts, apply};
use super::approval;
use super::values::json;
use super::work::{self, AWAITS, COLUMNS, LEASED, Work};
use crate::decide::{ClaimTimes, ended_by_time};
use crate::store::error::StoreError;
use crate::store::jump::Jump;
use crate::store::sql::{Connection, params};
use nexus_model::directive::Event;
use nexus_model::ids::DirectiveId;
use nexus_model::spec::{DirectiveChanges, DirectiveSpec};

/// Largest number of directives of one round.
const MAX_ROUND: usize = 200;

/// Ends or queues again a directive that no daemon reports any more. What changed since it was listed decides.
pub fn reap(connection: &Connection<'_>, id: &DirectiveId, epoch: u64, now: i64) -> Result<Option<Effect>, StoreError> {
    let Some(work) = work::hold(connection, id)? else { return Ok(None) };
    let times = connection
        .prepare_cached("SELECT lease_until, visible_at, queue_until FROM work WHERE directive_id = ?1")?
        .query_row(params![work.id], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<i64>>(2)?)))?;
    let (lease_until, visible_at, queue_until) = times;
    let event = if work.phase == AWAITS {
        // Its time in the queue has not started.
        None
    } else if work.phase < LEASED {
        queue_until.is_some_and(|until| now >= until).then_some(Event::QueueTimeout)
    } else {
        verdict(&work, lease_until, visible_at, epoch, now)
    };
    let Some(mut event) = event else { return Ok(None) };
    if let Event::LeaseLost { may_restart, commits, .. } = &mut event {
        *commits = commits_changes(connection, &work)?;
        if work.asks && work.requeue {
            // Another start needs another use of the approval.
            *may_restart = approval::may_start_again(connection, &work, now)?;
        }
    }
    Ok(apply(connection, &work, &event, now, EndFacts::default())?.ok())
}

/// Returns whether the directive asks that its changes are committed.
fn commits_changes(connection: &Connection<'_>, work: &Work) -> Result<bool, StoreError> {
    let spec: String = connection
        .prepare_cached("SELECT spec FROM directive WHERE id = ?1")?
        .query_row(params![work.id], |row| row.get(0))?;
    Ok(json::<DirectiveSpec>(&spec)?.changes.unwrap_or_default() == DirectiveChanges::Commit)
}

/// Moves all leases and approvals by a jump of the clock, so that none ends because of it. What began after the jump, and a lease that
/// was renewed since, has the new time already: moved again it would last as long as the jump, if its daemon dies before it renews it.
pub fn shift_leases(connection: &Connection<'_>, jump: Jump) -> Result<(), StoreError> {
    let Jump { by, since, until } = jump;
    let renewed = jump.renewed();
    connection.execute(
        "UPDATE work SET lease_until = CASE WHEN lease_until BETWEEN ?4 AND ?5 THEN lease_until ELSE lease_until + ?1 END,
           visible_at = CASE WHEN visible_at BETWEEN ?4 AND ?5 THEN visible_at ELSE visible_at + ?1 END,
           cancel_at = CASE WHEN cancel_at BETWEEN ?4 AND ?5 THEN cancel_at ELSE cancel_at + ?1 END,
           deadline = CASE WHEN started_at BETWEEN ?2 AND ?3 THEN deadline ELSE deadline + ?1 END,
           queue_until = CASE WHEN EXISTS (SELECT 1 FROM directive d WHERE d.id = work.directive_id AND d.created_at BETWEEN ?2 AND ?3)
             THEN queue_until ELSE queue_until + ?1 END",
        params![by, since, until, renewed.start, renewed.end],
    )?;
    connection.execute(
        "UPDATE presence SET last_seen = last_seen + ?1 WHERE last_seen NOT BETWEEN ?2 AND ?3",
        params![by, renewed.start, renewed.end],
    )?;
    approval::shift(connection, jump)?;
    super::connection::shift(connection, jump)
}

/// Lists directives that no daemon reports any more.
pub fn due(connection: &Connection<'_>, epoch: u64, now: i64) -> Result<Vec<DirectiveId>, StoreError> {
    let mut found = Vec::new();
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS}, lease_until, visible_at FROM work WHERE phase >= 2"))?;
    statement.each(params![], |row| {
        let work = work::read(row)?;
        if verdict(&work, row.get("lease_until")?, row.get("visible_at")?, epoch, now).is_some() {
            found.push(work.directive());
        }
        Ok(found.len() < MAX_ROUND)
    })?;
    let mut statement = connection.prepare_cached(
        "SELECT directive_id FROM work WHERE queue_until <= ?1 AND phase >= 0 AND phase < 2 LIMIT ?2",
    )?;
    let waiting = statement.query_all(params![now, MAX_ROUND as i64], |row| row.get(0))?;
    found.extend(waiting.into_iter().map(DirectiveId::from_bytes));
    Ok(found)
}

/// Returns the event that time has brought about.
fn verdict(work: &Work, lease_until: Option<i64>, visible_at: Option<i64>, epoch: u64, now: i64) -> Option<Event> {
    let Work { fence, cancel_at, deadline, .. } = *work;
    let has_started = work.phase != LEASED;
    ended_by_time(&ClaimTimes { fence, has_started, lease_until, visible_at, cancel_at, deadline }, epoch, now)
}

#[cfg(test)]
#[path = "reap_tests.rs"]
mod tests;
