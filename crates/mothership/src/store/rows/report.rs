//! Reports of daemons about a directive, and the request of a user to end one.

use super::apply::{EndFacts, LATE_MS, alter_over, apply, over};
use super::approval;
use super::audit;
use super::held::held;
use super::values::{ANY, json};
use super::withdrawal::withdraw_connections;
use super::work::{self, Work};
use crate::decide::OVERRUN_MS;
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{
    Account, Beat, Counters, EndResult, EndState, Holding, Lane, LeaseTimes, NewEnd, OutputEnd, Reported, StartedState,
    Territory,
};
use nexus_api::conduits::{Progress, Verdict};
use nexus_model::digest::Digest;
use nexus_model::directive::{
    Directive, EndReason, Event, Fence, FinishStatus, NOT_COMMITTED, Refusal, State, Step, step,
};
use nexus_model::ids::DirectiveId;
use nexus_model::spec::DirectiveSpec;

/// Largest diff of a directive that names no bound.
const DEFAULT_DIFF_BYTES: u64 = 1024 * 1024;

/// Stores the start of a directive. `versions` tells one report from another.
pub fn started(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    versions: &str,
    times: LeaseTimes,
    now: i64,
) -> Result<Reported<StartedState>, StoreError> {
    let work = match held(connection, territory, holding, work::hold)? {
        Ok(work) => work,
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    if work.started.as_deref().is_some_and(|known| known != versions) {
        return Ok(Reported::Differs);
    }
    let effect = match apply(connection, &work, &Event::Started { fence: holding.fence }, now, EndFacts::default())? {
        Ok(effect) => effect,
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    if !effect.duplicate {
        note_start(connection, territory, &work, versions, times, now)?;
    }
    Ok(Reported::Done(StartedState { state: effect.state, duplicate: effect.duplicate }))
}

/// The territory that first starts a directive of a facility holds its files from then on.
fn note_start(
    connection: &Connection<'_>,
    territory: Territory,
    work: &Work,
    versions: &str,
    times: LeaseTimes,
    now: i64,
) -> Result<(), StoreError> {
    let deadline = now + times.prepare_ms + work.timeout_ms + OVERRUN_MS;
    connection
        .prepare_cached("UPDATE work SET started = ?2, started_at = ?3, deadline = ?4, lease_until = ?5, visible_at = NULL WHERE directive_id = ?1")?
        .execute(params![work.id, versions, now, deadline, now + times.ttl_ms])?;
    let here = territory.id.as_bytes();
    let pinned = connection
        .prepare_cached("UPDATE facility SET pin = ?2 WHERE id = ?1 AND pin IS NULL")?
        .execute(params![work.facility, here])?;
    if pinned > 0 {
        connection.prepare_cached("UPDATE work SET pin = ?2 WHERE facility_id = ?1 AND pin = ?3")?.execute(params![
            work.facility,
            here,
            ANY
        ])?;
    }
    let (object, detail) = (format!("directive/{}", work.directive()), serde_json::json!({"attempt": work.attempt}));
    audit::note_of_territory(connection, work.account, territory.id, "directive.start", &object, &detail, now)
}

/// Renews the lease of a directive.
pub fn directive_beat(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    progress: Option<&Progress>,
    times: LeaseTimes,
    now: i64,
) -> Result<Reported<Beat>, StoreError> {
    let work = match held(connection, territory, holding, work::alter)? {
        Ok(work) => work,
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    if progress.is_some_and(Progress::is_settling) && work.state() == State::Running {
        let settling = Event::Settling { fence: holding.fence };
        if let Err(refusal) = apply(connection, &work, &settling, now, EndFacts::default())? {
            return Ok(Reported::Refused(refusal));
        }
    }
    let lease_until = now + times.ttl_ms;
    let deadline = match progress {
        Some(progress) if progress.is_after_the_command() => {
            kept_deadline(work.deadline, work.started_at.unwrap_or(now) + work.timeout_ms, lease_until)
        }
        _ => work.deadline,
    };
    connection
        .prepare_cached("UPDATE work SET lease_until = ?2, deadline = ?3 WHERE directive_id = ?1")?
        .execute(params![work.id, lease_until, deadline])?;
    let verdict = match (deadline.is_some_and(|deadline| now >= deadline), work.cancel_at) {
        (true, _) => Verdict::Abort,
        (false, Some(_)) => Verdict::Cancel,
        (false, None) => Verdict::Extend,
    };
    Ok(Reported::Done(Beat { cancel_requested: verdict != Verdict::Extend, attempt: work.attempt, verdict }))
}

/// Returns the end of all limits of a claim whose command has ended: with its lease, for a day beyond them. The limits are for commands, and
/// what this claim has committed must not be called timed out because its report takes a while.
fn kept_deadline(deadline: Option<i64>, limits_end: i64, lease_until: i64) -> Option<i64> {
    deadline.map(|deadline| deadline.max(lease_until.min(limits_end.saturating_add(LATE_MS))))
}

/// Stores the end of a directive, as reported.
pub fn finished(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    end: &NewEnd,
    now: i64,
) -> Result<Reported<EndState>, StoreError> {
    let mut work = match held(connection, territory, holding, work::hold)? {
        Ok(work) => work,
        Err(Refusal::Over { state }) => return repeated(connection, territory, holding, end, state, now),
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    if let Some(diff) = &end.diff {
        let max = max_diff(connection, &work)?;
        if diff.len() as u64 > max {
            return Ok(Reported::DiffTooLarge { max });
        }
    }
    for (counters, reported) in work.counters.iter_mut().zip(end.output) {
        counters.end(reported);
    }
    work.started_at = work.started_at.or(Some(now));
    put_report(connection, &work.id, work.attempt, end.diff.as_ref(), end.receipt.as_ref())?;
    let facts = EndFacts {
        reason: end.reason.clone(),
        exit_code: end.exit_code,
        payload_hash: Some(end.payload_hash.clone()),
        result: Some(end.result.clone()),
        receipt: end.receipt.as_ref().and_then(Digest::of_json),
    };
    // Another start needs another use of the approval.
    let may_restart = !(work.asks && work.requeue) || approval::may_start_again(connection, &work, now)?;
    let event = event_of(holding.fence, end, may_restart);
    Ok(match apply(connection, &work, &event, now, facts)? {
        Ok(effect) => Reported::Done(EndState { state: effect.state, duplicate: false, promoted: effect.lane }),
        Err(refusal) => Reported::Refused(refusal),
    })
}

/// Returns the event that a report of an end is.
fn event_of(fence: Fence, end: &NewEnd, may_restart: bool) -> Event {
    match end.reason.as_deref() {
        Some(NOT_COMMITTED) if end.status == FinishStatus::Failed => Event::NotCommitted { fence, may_restart },
        _ => Event::Finished { fence, status: end.status },
    }
}

/// Returns the largest diff of a directive.
fn max_diff(connection: &Connection<'_>, work: &Work) -> Result<u64, StoreError> {
    let spec: String = connection
        .prepare_cached("SELECT spec FROM directive WHERE id = ?1")?
        .query_row(params![work.id], |row| row.get(0))?;
    let spec: DirectiveSpec = json(&spec)?;
    Ok(spec.limits.max_diff_bytes.unwrap_or(DEFAULT_DIFF_BYTES))
}

/// A report of an end that is known already is a duplicate; one that says something else is refused. The end of a claim that was taken
/// back when its changes may have been committed is not known: the report of its holder says it.
fn repeated(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    end: &NewEnd,
    state: State,
    now: i64,
) -> Result<Reported<EndState>, StoreError> {
    // Of two calls with this report one waits for the other.
    let over = alter_over(connection, &holding.directive)?.ok_or(StoreError::NotFound)?;
    match &over.payload_hash {
        Some(known) if *known == end.payload_hash => {
            return Ok(Reported::Done(EndState { state, duplicate: true, promoted: None }));
        }
        Some(_) => return Ok(Reported::Differs),
        None if !over.may_be_reported_by(territory.id, now) => return Ok(Reported::Refused(Refusal::Over { state })),
        None => {}
    }
    match step(&over.machine(), &event_of(holding.fence, end, false)) {
        Ok(Step::Changed(next)) => {
            late(connection, territory, holding, end, &next, now)?;
            Ok(Reported::Done(EndState { state: next.state, duplicate: false, promoted: None }))
        }
        Ok(Step::Duplicate) => Ok(Reported::Refused(Refusal::Over { state })),
        Err(refusal) => Ok(Reported::Refused(refusal)),
    }
}

/// Puts the report of the holder in the place of an end that the server assumed.
fn late(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    end: &NewEnd,
    next: &Directive,
    now: i64,
) -> Result<(), StoreError> {
    let reason = match next.reason {
        Some(EndReason::Reported) | None => end.reason.as_deref(),
        Some(known) => known.name(),
    };
    let id = holding.directive.as_bytes();
    let (out, err, spec): (Option<String>, Option<String>, String) = connection
        .prepare_cached("SELECT out, err, spec FROM directive WHERE id = ?1")?
        .query_row(params![id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let spec: DirectiveSpec = json(&spec)?;
    let max = spec.limits.max_diff_bytes.unwrap_or(DEFAULT_DIFF_BYTES);
    // A diff that is too large is left out: the end matters more.
    let diff = end.diff.as_ref().filter(|diff| diff.len() as u64 <= max);
    let mut result = EndResult { reported_at: Some(now), ..end.result.clone() };
    result.diff_truncated |= diff.is_none() && end.diff.is_some();
    let counters = |text: Option<String>, reported: OutputEnd| -> Result<String, StoreError> {
        let mut counters: Counters = text.map_or_else(|| Ok(Counters::default()), |text| json(&text))?;
        counters.end(reported);
        super::values::text(&counters)
    };
    connection
        .prepare_cached(
            "UPDATE directive SET state = ?2, reason = ?3, exit_code = ?4, payload_hash = ?5, result = ?6, out = ?7, err = ?8,
               version = version + 1 WHERE id = ?1",
        )?
        .execute(params![
            id,
            next.state.name(),
            reason,
            end.exit_code,
            end.payload_hash,
            super::values::text(&result)?,
            counters(out, end.output[0])?,
            counters(err, end.output[1])?,
        ])?;
    put_report(connection, id, next.attempt, diff, end.receipt.as_ref())?;
    let detail = serde_json::json!({
        "state": next.state, "reason": reason, "exit_code": end.exit_code, "attempt": next.attempt,
        "receipt": end.receipt.as_ref().and_then(Digest::of_json), "late": true,
    });
    let object = format!("directive/{}", holding.directive);
    audit::note_of_territory(connection, territory.account, territory.id, "directive.end", &object, &detail, now)
}

/// Stores the diff and the receipt of an end.
fn put_report(
    connection: &Connection<'_>,
    id: &[u8; 16],
    attempt: u32,
    diff: Option<&Vec<u8>>,
    receipt: Option<&serde_json::Value>,
) -> Result<(), StoreError> {
    if diff.is_none() && receipt.is_none() {
        return Ok(());
    }
    connection
        .prepare_cached(
            "INSERT INTO report (directive_id, attempt, diff, receipt) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (directive_id, attempt) DO UPDATE SET diff = excluded.diff, receipt = excluded.receipt",
        )?
        .execute(params![id, attempt, diff, receipt.map(serde_json::Value::to_string)])?;
    Ok(())
}

/// Result of a request to end a directive.
pub type Canceled = Result<(State, bool, Option<Lane>), Refusal>;

/// Ends a directive that waits, and marks one that runs.
pub fn cancel(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    epoch: u64,
    now: i64,
) -> Result<Canceled, StoreError> {
    let Some(work) = work::hold(connection, &id)? else {
        let over = over(connection, &id)?.filter(|over| over.account == account.id).ok_or(StoreError::NotFound)?;
        return Ok(Err(Refusal::Over { state: over.state }));
    };
    if work.account != account.id {
        return Err(StoreError::NotFound);
    }
    let next = work.fence.next(epoch).ok_or_else(|| StoreError::corrupt("the fences are used up"))?;
    let event = Event::Cancel { confirms: work.confirms, next };
    let effect = apply(connection, &work, &event, now, EndFacts::default())?;
    if effect.as_ref().is_ok_and(|effect| !effect.duplicate) {
        // A command that is about to end makes no further connection.
        withdraw_connections(connection, &work.id, now)?;
        audit::note(connection, account, "directive.cancel", &format!("directive/{id}"), &serde_json::json!({}), now)?;
    }
    Ok(effect.map(|effect| (effect.state, !effect.state.is_terminal(), effect.lane)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_a_claim_that_reports_its_end_last_as_long_as_its_lease_for_a_day() {
        assert_eq!(kept_deadline(Some(1_000), 500, 900), Some(1_000));
        assert_eq!(kept_deadline(Some(1_000), 500, 60_000), Some(60_000));
        assert_eq!(kept_deadline(Some(1_000), 500, LATE_MS * 2), Some(LATE_MS + 500));
        assert_eq!(kept_deadline(Some(LATE_MS * 2), 500, LATE_MS * 3), Some(LATE_MS * 2), "it is never shortened");
        assert_eq!(kept_deadline(None, 500, 60_000), None);
    }
}
