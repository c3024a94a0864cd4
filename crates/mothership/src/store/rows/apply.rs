//! Applies the decisions of the state machine to the rows.

use super::audit;
use super::values::{ANY, Id, json, optional, text};
use super::withdrawal::{withdraw, withdraw_connections};
use super::work::{AWAITS, LEASED, READY, RUNNING, SETTLING, WAITS, Work};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{ClassRequirements, EndResult, Lane};
use nexus_model::digest::Digest;
use nexus_model::directive::{
    Directive, EndReason, Event, Fence, OnLeaseLoss, Refusal, State, Step, UnknownState, step,
};
use nexus_model::ids::{AccountId, DirectiveId, TerritoryId};
use nexus_model::spec::DirectiveSpec;

/// Time in which the holder of a claim that was taken back can tell how it ended.
pub const LATE_MS: i64 = 24 * 3_600_000;

/// Facts of a reported end, beside the state.
#[derive(Debug, Clone, Default)]
pub struct EndFacts {
    /// Reason as reported.
    pub reason: Option<String>,
    pub exit_code: Option<i64>,
    /// Hash of the report.
    pub payload_hash: Option<String>,
    /// Part of the report that reads show.
    pub result: Option<EndResult>,
    /// Hash of the receipt.
    pub receipt: Option<Digest>,
}

/// Effect of an event.
#[derive(Debug, Clone)]
pub struct Effect {
    /// State after the event.
    pub state: State,
    /// Nothing has changed.
    pub duplicate: bool,
    /// Lane that has a ready directive because of the event.
    pub lane: Option<Lane>,
}

/// Lets `event` happen to the directive. A refusal changes nothing.
pub fn apply(
    connection: &Connection<'_>,
    work: &Work,
    event: &Event,
    now: i64,
    facts: EndFacts,
) -> Result<Result<Effect, Refusal>, StoreError> {
    let next = match step(&work.machine(), event) {
        Err(refusal) => return Ok(Err(refusal)),
        Ok(Step::Duplicate) => return Ok(Ok(Effect { state: work.state(), duplicate: true, lane: None })),
        Ok(Step::Changed(next)) => next,
    };
    let lane = if next.state.is_terminal() {
        end(connection, work, &next, now, facts)?;
        promote(connection, &work.facility)?
    } else {
        change(connection, work, &next, now)?
    };
    Ok(Ok(Effect { state: next.state, duplicate: false, lane }))
}

fn change(connection: &Connection<'_>, work: &Work, next: &Directive, now: i64) -> Result<Option<Lane>, StoreError> {
    let cancel_at = next.cancel_requested.then_some(work.cancel_at.unwrap_or(now));
    if next.state == State::Queued && work.phase == AWAITS {
        return approved(connection, work);
    }
    if next.state == State::Queued {
        withdraw_connections(connection, &work.id, now)?;
        // The directive keeps the facility: it is the head of its queue.
        connection
            .prepare_cached(
                "UPDATE work SET phase = ?2, version = version + 1, holder = NULL, poll_id = NULL, visible_at = NULL,
                   lease_until = NULL, started_at = NULL, started = NULL, deadline = NULL WHERE directive_id = ?1",
            )?
            .execute(params![work.id, READY])?;
        return lane_of(connection, work.account, work.class, work.pin).map(Some);
    }
    let phase = match next.state {
        State::Running if next.settling => SETTLING,
        State::Running => RUNNING,
        _ => LEASED,
    };
    connection
        .prepare_cached(
            "UPDATE work SET phase = ?2, version = version + 1, starts = ?3, cancel_at = ?4, fence = ?5 WHERE directive_id = ?1",
        )?
        .execute(params![work.id, phase, next.starts, cancel_at, next.fence.0 as i64])?;
    Ok(None)
}

/// The directive takes its place in the queue of its facility.
fn approved(connection: &Connection<'_>, work: &Work) -> Result<Option<Lane>, StoreError> {
    let taken: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM work WHERE facility_id = ?1 AND phase >= 1)")?
        .query_row(params![work.facility], |row| row.get(0))?;
    connection
        .prepare_cached("UPDATE work SET phase = ?2, version = version + 1 WHERE directive_id = ?1")?
        .execute(params![work.id, if taken { WAITS } else { READY }])?;
    if taken { Ok(None) } else { lane_of(connection, work.account, work.class, work.pin).map(Some) }
}

fn end(
    connection: &Connection<'_>,
    work: &Work,
    next: &Directive,
    now: i64,
    facts: EndFacts,
) -> Result<(), StoreError> {
    let reason = match next.reason {
        Some(EndReason::Reported) | None => facts.reason,
        Some(reason) => reason.name().map(str::to_owned),
    };
    if work.asks {
        withdraw(connection, &work.id, now)?;
    }
    withdraw_connections(connection, &work.id, now)?;
    connection.prepare_cached("DELETE FROM work WHERE directive_id = ?1")?.execute(params![work.id])?;
    connection
        .prepare_cached(
            "UPDATE directive SET state = ?2, reason = ?3, exit_code = ?4, attempt = ?5, fence = ?6, version = ?7, payload_hash = ?8,
               started_at = ?9, ended_at = ?10, territory_id = ?11, result = ?12, out = ?13, err = ?14 WHERE id = ?1",
        )?
        .execute(params![
            work.id,
            next.state.name(),
            reason,
            facts.exit_code,
            next.attempt,
            next.fence.0 as i64,
            work.version + 1,
            facts.payload_hash,
            work.started_at,
            now,
            work.holder,
            facts.result.as_ref().map(text).transpose()?,
            text(&work.counters[0])?,
            text(&work.counters[1])?,
        ])?;
    let object = format!("directive/{}", work.directive());
    let detail = serde_json::json!({
        "state": next.state, "reason": reason, "exit_code": facts.exit_code, "attempt": next.attempt,
        "receipt": facts.receipt,
    });
    match work.holder.filter(|_| facts.payload_hash.is_some()) {
        Some(holder) => {
            let holder = TerritoryId::from_bytes(holder);
            audit::note_of_territory(connection, work.account, holder, "directive.end", &object, &detail, now)
        }
        // Time or a user has ended it; the act of the user stands in an event of its own.
        None => audit::note_of_server(connection, work.account, "directive.end", &object, &detail, now),
    }
}

/// Gives the facility to the first directive that waits for it.
fn promote(connection: &Connection<'_>, facility: &Id) -> Result<Option<Lane>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT directive_id, account_id, class_id, pin FROM work WHERE facility_id = ?1 AND phase = 0 ORDER BY rank, directive_id LIMIT 1",
    )?;
    let head = statement.query_row(params![facility], |row| {
        Ok((row.get::<_, Id>(0)?, row.get::<_, Id>(1)?, row.get::<_, i64>(2)?, row.get::<_, Id>(3)?))
    });
    let Some((id, account, class, pin)) = optional(head)? else { return Ok(None) };
    let taken = connection
        .prepare_cached(
            "UPDATE work SET phase = 1, version = version + 1 WHERE directive_id = ?1
               AND NOT EXISTS (SELECT 1 FROM work w WHERE w.facility_id = ?2 AND w.phase >= 1)",
        )?
        .execute(params![id, facility])?;
    if taken == 0 {
        return Ok(None);
    }
    let pin = (pin != ANY).then(|| TerritoryId::from_bytes(pin));
    lane_of(connection, AccountId::from_bytes(account), class, pin).map(Some)
}

/// Returns the lane of a class and a pin.
pub fn lane_of(
    connection: &Connection<'_>,
    account: AccountId,
    class: i64,
    pin: Option<TerritoryId>,
) -> Result<Lane, StoreError> {
    Ok(Lane { account, class: requirements(connection, class)?, pin })
}

/// Returns the demands of a class.
pub fn requirements(connection: &Connection<'_>, class: i64) -> Result<ClassRequirements, StoreError> {
    let found: String = connection
        .prepare_cached("SELECT requirements FROM class WHERE id = ?1")?
        .query_row(params![class], |row| row.get(0))?;
    json(&found)
}

/// State of a directive that may be over, for the answer to a report that hit no live row.
pub struct Over {
    pub state: State,
    /// Hash of the report that ended it.
    pub payload_hash: Option<String>,
    /// Number of its latest claim or cancellation.
    pub fence: u64,
    /// Count of its claims.
    pub attempt: u32,
    /// Account that owns the object.
    pub account: AccountId,
    /// Territory of its latest claim.
    pub holder: Option<Id>,
    /// Time of the end; `None` while it is not over.
    pub ended_at: Option<i64>,
    /// Reason of an end that the server wrote itself.
    pub reason: Option<EndReason>,
}

impl Over {
    /// Returns the facts that decide whether a report changes the end.
    pub fn machine(&self) -> Directive {
        Directive {
            state: self.state,
            reason: self.reason,
            fence: Fence(self.fence),
            attempt: self.attempt,
            starts: self.attempt,
            settling: false,
            cancel_requested: false,
            on_lease_loss: OnLeaseLoss::Fail,
        }
    }

    /// Returns whether the server assumed the end, and the territory of the claim may still tell the true one.
    pub fn may_be_reported_by(&self, territory: TerritoryId, now: i64) -> bool {
        self.machine().is_assumed()
            && self.holder == Some(*territory.as_bytes())
            && self.ended_at.is_some_and(|ended| now < ended.saturating_add(LATE_MS))
    }
}

/// Returns the reason of an end that no daemon reported, as far as it decides anything. `runs_again` is read where it is needed.
pub fn assumed(
    reason: Option<&str>,
    has_started: bool,
    runs_again: impl FnOnce() -> Result<bool, StoreError>,
) -> Result<Option<EndReason>, StoreError> {
    let found = [EndReason::CommitUnknown, EndReason::Unconfirmed, EndReason::LeaseLost]
        .into_iter()
        .find(|one| reason.is_some() && one.name() == reason);
    // An earlier version of the server wrote lease_lost for every claim that was taken back outside of a long commit.
    Ok(match found {
        Some(EndReason::LeaseLost) if has_started && !runs_again()? => Some(EndReason::CommitUnknown),
        other => other,
    })
}

/// Returns the end of a directive, to read it.
pub fn over(connection: &Connection<'_>, id: &DirectiveId) -> Result<Option<Over>, StoreError> {
    read_over(connection, id, "")
}

/// Returns the end of a directive for a change of what is stored about it. Others who change it wait.
pub fn alter_over(connection: &Connection<'_>, id: &DirectiveId) -> Result<Option<Over>, StoreError> {
    read_over(connection, id, connection.locked())
}

fn read_over(connection: &Connection<'_>, id: &DirectiveId, locked: &str) -> Result<Option<Over>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT state, payload_hash, fence, attempt, account_id, territory_id, ended_at, reason, started_at
           FROM directive WHERE id = ?1{locked}"
    ))?;
    let row = statement.query_row(params![id.as_bytes()], |row| {
        let over = Over {
            state: row
                .get::<_, String>(0)?
                .parse()
                .map_err(|error: UnknownState| StoreError::corrupt(error.to_string()))?,
            payload_hash: row.get(1)?,
            fence: row.get::<_, i64>(2)? as u64,
            attempt: row.get(3)?,
            account: AccountId::from_bytes(row.get(4)?),
            holder: row.get(5)?,
            ended_at: row.get(6)?,
            reason: None,
        };
        Ok((over, row.get::<_, Option<String>>(7)?, row.get::<_, Option<i64>>(8)?))
    });
    let Some((mut over, reason, started_at)) = optional(row)? else { return Ok(None) };
    if over.payload_hash.is_none() {
        let runs_again = || {
            let spec: String = connection
                .prepare_cached("SELECT spec FROM directive WHERE id = ?1")?
                .query_row(params![id.as_bytes()], |row| row.get(0))?;
            Ok(json::<DirectiveSpec>(&spec)?.on_lease_loss == Some(OnLeaseLoss::Requeue))
        };
        over.reason = assumed(reason.as_deref(), started_at.is_some(), runs_again)?;
    }
    Ok(Some(over))
}
