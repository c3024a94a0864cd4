//! Directives as users see them.

use super::apply::{LATE_MS, assumed, requirements};
use super::territory::{DECOMMISSIONED, all_facts};
use super::values::{Id, json, optional};
use super::work::{self, WAITS, Work};
use crate::decide::queued_because;
use crate::store::error::StoreError;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{Account, Counters, DirectiveLine, EndResult, LeaseTimes, LiveDirectives, Page, Snapshot};
use nexus_api::Timestamp;
use nexus_api::mothership::{Directive, DirectiveEvent};
use nexus_model::directive::{EndReason, State};
use nexus_model::ids::{DirectiveId, FacilityId, TerritoryId};
use nexus_model::spec::DirectiveSpec;
use serde::Deserialize;

const SELECT: &str =
    "SELECT d.id, d.facility_id, d.state, d.reason, d.exit_code, d.attempt, d.version, d.created_at, d.started_at,
      d.ended_at, d.territory_id, d.payload_hash IS NOT NULL AS is_reported, d.spec, d.approval_reasons, d.result, d.out, d.err,
      EXISTS (SELECT 1 FROM report r WHERE r.directive_id = d.id AND r.diff IS NOT NULL) AS has_diff,
      EXISTS (SELECT 1 FROM report r WHERE r.directive_id = d.id AND r.receipt IS NOT NULL) AS has_receipt
    FROM directive d";

struct Stored {
    id: Id,
    facility: Id,
    state: String,
    reason: Option<String>,
    exit_code: Option<i64>,
    attempt: u32,
    version: i64,
    created_at: i64,
    started_at: Option<i64>,
    ended_at: Option<i64>,
    territory: Option<Id>,
    is_reported: bool,
    spec: String,
    approval_reasons: String,
    result: Option<String>,
    out: Option<String>,
    err: Option<String>,
    has_diff: bool,
    has_receipt: bool,
}

fn stored(row: &Row<'_>) -> Result<Stored, StoreError> {
    Ok(Stored {
        id: row.get("id")?,
        facility: row.get("facility_id")?,
        state: row.get("state")?,
        reason: row.get("reason")?,
        exit_code: row.get("exit_code")?,
        attempt: row.get("attempt")?,
        version: row.get("version")?,
        created_at: row.get("created_at")?,
        started_at: row.get("started_at")?,
        ended_at: row.get("ended_at")?,
        territory: row.get("territory_id")?,
        is_reported: row.get("is_reported")?,
        spec: row.get("spec")?,
        approval_reasons: row.get("approval_reasons")?,
        result: row.get("result")?,
        out: row.get("out")?,
        err: row.get("err")?,
        has_diff: row.get("has_diff")?,
        has_receipt: row.get("has_receipt")?,
    })
}

/// Facts of a directive that stand in the live row while it lives, and in the stored one afterwards.
struct Present {
    state: State,
    attempt: u32,
    version: i64,
    territory: Option<Id>,
    started_at: Option<i64>,
    cancel_requested: bool,
    counters: [Counters; 2],
}

fn present(stored: &Stored, work: Option<&Work>) -> Result<Present, StoreError> {
    if let Some(work) = work {
        return Ok(Present {
            state: work.state(),
            attempt: work.attempt,
            version: work.version,
            territory: work.holder,
            started_at: work.started_at,
            cancel_requested: work.cancel_at.is_some(),
            counters: work.counters,
        });
    }
    let read = |text: &Option<String>| text.as_deref().map_or_else(|| Ok(Counters::default()), json);
    Ok(Present {
        state: stored.state.parse().map_err(|_| StoreError::corrupt("directive.state"))?,
        attempt: stored.attempt,
        version: stored.version,
        territory: stored.territory,
        started_at: stored.started_at,
        cancel_requested: false,
        counters: [read(&stored.out)?, read(&stored.err)?],
    })
}

/// Output is incomplete when the daemon says so, and after the end also when a chunk is missing.
fn truncated(counters: Counters, over: bool) -> bool {
    counters.truncated || (over && counters.has_gap())
}

fn view(
    connection: &Connection<'_>,
    account: Account,
    stored: &Stored,
    because: bool,
    times: LeaseTimes,
    now: i64,
) -> Result<Directive, StoreError> {
    let id = DirectiveId::from_bytes(stored.id);
    let work = if stored.ended_at.is_none() { work::load(connection, &id)? } else { None };
    let present = present(stored, work.as_ref())?;
    let over = present.state.is_terminal();
    let spec: DirectiveSpec = json(&stored.spec)?;
    let result: EndResult = stored.result.as_deref().map_or_else(|| Ok(EndResult::default()), json)?;
    let queued_because = match &work {
        Some(work) if because && work.state() == State::Queued => {
            Some(reason_to_wait(connection, account, work, times, now)?)
        }
        _ => None,
    };
    Ok(Directive {
        directive_id: id,
        facility_id: FacilityId::from_bytes(stored.facility),
        state: present.state,
        reason: stored.reason.clone(),
        exit_code: stored.exit_code,
        command: spec.command,
        sandbox_profile: spec.sandbox_profile,
        effective_capabilities: serde_json::to_value(spec.capabilities).ok(),
        approval_reasons: json(&stored.approval_reasons)?,
        queued_because,
        stdout_truncated: truncated(present.counters[0], over),
        stderr_truncated: truncated(present.counters[1], over),
        diff_truncated: result.diff_truncated,
        snapshot_before: result.snapshot_before,
        snapshot_after: result.snapshot_after,
        artifacts_manifest: result.artifacts_manifest,
        timing: result.timing,
        territory_id: present.territory.map(TerritoryId::from_bytes),
        attempt: present.attempt,
        cancel_requested: present.cancel_requested,
        has_diff: stored.has_diff,
        has_receipt: stored.has_receipt,
        created_at: Timestamp(stored.created_at),
        started_at: present.started_at.map(Timestamp),
        ended_at: stored.ended_at.map(Timestamp),
    })
}

fn reason_to_wait(
    connection: &Connection<'_>,
    account: Account,
    work: &Work,
    times: LeaseTimes,
    now: i64,
) -> Result<String, StoreError> {
    if work.phase == WAITS {
        return Ok("Another directive uses the facility.".to_owned());
    }
    let class = requirements(connection, work.class)?;
    Ok(queued_because(&class, work.pin, &all_facts(connection, account.id, times, now)?))
}

fn load(connection: &Connection<'_>, account: Account, id: DirectiveId) -> Result<Stored, StoreError> {
    let row = connection
        .prepare_cached(&format!("{SELECT} WHERE d.id = ?1 AND d.account_id = ?2"))?
        .query_row(params![id.as_bytes(), account.id.as_bytes()], stored);
    optional(row)?.ok_or(StoreError::NotFound)
}

/// Returns a directive of the account.
pub fn directive(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    times: LeaseTimes,
    now: i64,
) -> Result<Directive, StoreError> {
    view(connection, account, &load(connection, account, id)?, true, times, now)
}

/// Returns directives of the account, or of one of its facilities, the latest first.
pub fn directives(
    connection: &Connection<'_>,
    account: Account,
    facility: Option<FacilityId>,
    page: Page,
    times: LeaseTimes,
    now: i64,
) -> Result<Vec<Directive>, StoreError> {
    let rows = if let Some(facility) = facility {
        super::facility::facility(connection, account, facility)?;
        let mut statement = connection.prepare_cached(&format!(
            "{SELECT} WHERE d.facility_id = ?1 AND d.account_id = ?4 AND d.id < ?2 ORDER BY d.id DESC LIMIT ?3"
        ))?;
        statement.query_all(params![facility.as_bytes(), page.below(), page.limit, account.id.as_bytes()], stored)?
    } else {
        let mut statement = connection
            .prepare_cached(&format!("{SELECT} WHERE d.account_id = ?1 AND d.id < ?2 ORDER BY d.id DESC LIMIT ?3"))?;
        statement.query_all(params![account.id.as_bytes(), page.below(), page.limit], stored)?
    };
    rows.iter().map(|row| view(connection, account, row, false, times, now)).collect()
}

/// The part of a specification that a list shows.
#[derive(Deserialize)]
struct Commanded {
    command: String,
}

/// Characters of a command that a list for people gets: more than a row shows.
const MAX_SHOWN: usize = 200;
/// Directives of one statement of such a list: so many whole commands are in memory at one time.
const LINES_AT_ONCE: u32 = 100;

/// Returns what a list for people shows of directives, the latest first, by statements of bounded size.
pub fn directive_lines(
    connection: &Connection<'_>,
    account: Account,
    facility: Option<FacilityId>,
    page: Page,
) -> Result<Vec<DirectiveLine>, StoreError> {
    let (mut found, mut before) = (Vec::new(), page.before);
    loop {
        let limit = (page.limit - found.len() as u32).min(LINES_AT_ONCE);
        let more = some_lines(connection, account, facility, Page { before, limit })?;
        let is_last = more.len() < limit as usize;
        found.extend(more);
        before = found.last().map(|last: &DirectiveLine| *last.id.as_bytes());
        if is_last || found.len() >= page.limit as usize {
            return Ok(found);
        }
    }
}

/// Returns the first of such lines: one statement, with the few columns that it needs.
fn some_lines(
    connection: &Connection<'_>,
    account: Account,
    facility: Option<FacilityId>,
    page: Page,
) -> Result<Vec<DirectiveLine>, StoreError> {
    const COLUMNS: &str = "SELECT d.id, d.state, d.reason, d.exit_code, d.created_at, d.started_at, d.ended_at, d.spec, w.phase, \
         w.started_at FROM directive d LEFT JOIN work w ON w.directive_id = d.id AND d.ended_at IS NULL";
    let read = |row: &Row<'_>| {
        let state = match row.get::<_, Option<i64>>(8)? {
            Some(phase) => work::state_of(phase),
            None => row.get::<_, String>(1)?.parse().map_err(|_| StoreError::corrupt("directive.state"))?,
        };
        let started: Option<i64> = row.get(9)?;
        Ok(DirectiveLine {
            id: DirectiveId::from_bytes(row.get(0)?),
            state,
            reason: row.get(2)?,
            exit_code: row.get(3)?,
            command: json::<Commanded>(&row.get::<_, String>(7)?)?.command.chars().take(MAX_SHOWN).collect(),
            created_at: row.get(4)?,
            started_at: started.or(row.get(5)?),
            ended_at: row.get(6)?,
        })
    };
    let Some(facility) = facility else {
        let question = format!("{COLUMNS} WHERE d.account_id = ?1 AND d.id < ?2 ORDER BY d.id DESC LIMIT ?3");
        let mut statement = connection.prepare_cached(&question)?;
        return statement.query_all(params![account.id.as_bytes(), page.below(), page.limit], read);
    };
    super::facility::facility(connection, account, facility)?;
    let question =
        format!("{COLUMNS} WHERE d.facility_id = ?1 AND d.account_id = ?4 AND d.id < ?2 ORDER BY d.id DESC LIMIT ?3");
    let mut statement = connection.prepare_cached(&question)?;
    statement.query_all(params![facility.as_bytes(), page.below(), page.limit, account.id.as_bytes()], read)
}

/// Returns directives of the account that are not over, the latest first, and how many there are of each kind.
pub fn live_directives(
    connection: &Connection<'_>,
    account: Account,
    limit: u32,
    times: LeaseTimes,
    now: i64,
) -> Result<LiveDirectives, StoreError> {
    let rows = connection
        .prepare_cached(&format!(
            "{SELECT} JOIN work w ON w.directive_id = d.id WHERE w.account_id = ?1 ORDER BY d.id DESC LIMIT ?2"
        ))?
        .query_all(params![account.id.as_bytes(), limit], stored)?;
    let count = |from: i64, to: i64| -> Result<i64, StoreError> {
        connection
            .prepare_cached("SELECT count(*) FROM work WHERE account_id = ?1 AND phase >= ?2 AND phase <= ?3")?
            .query_row(params![account.id.as_bytes(), from, to], |row| row.get(0))
    };
    let directives =
        rows.iter().map(|row| view(connection, account, row, false, times, now)).collect::<Result<_, _>>()?;
    Ok(LiveDirectives { directives, running: count(work::LEASED, work::SETTLING)?, queued: count(WAITS, work::READY)? })
}

/// Returns whether the last holder of a directive is a territory that is not revoked.
fn can_report(connection: &Connection<'_>, holder: Option<Id>) -> Result<bool, StoreError> {
    let Some(holder) = holder else { return Ok(false) };
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM territory WHERE id = ?1 AND state < ?2)")?
        .query_row(params![holder, DECOMMISSIONED], |row| row.get(0))
}

/// Returns the present version of a directive for events.
pub fn snapshot(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    now: i64,
) -> Result<Snapshot, StoreError> {
    let stored = load(connection, account, id)?;
    let work = if stored.ended_at.is_none() { work::load(connection, &id)? } else { None };
    let present = present(&stored, work.as_ref())?;
    // An end that an earlier version of the server called lease_lost keeps no stream open.
    let assumed = if stored.is_reported { None } else { assumed(stored.reason.as_deref(), false, || Ok(true))? };
    let is_awaited = present.state.is_terminal()
        && assumed.is_some_and(EndReason::is_assumed)
        && stored.ended_at.is_some_and(|ended| now < ended.saturating_add(LATE_MS));
    Ok(Snapshot {
        version: present.version as u64,
        may_change: is_awaited && can_report(connection, stored.territory)?,
        event: DirectiveEvent {
            directive_id: id,
            state: present.state,
            reason: stored.reason,
            exit_code: stored.exit_code,
            attempt: present.attempt,
            cancel_requested: present.cancel_requested,
            stdout_next_seq: present.counters[0].next,
            stderr_next_seq: present.counters[1].next,
            at: Timestamp(now),
        },
    })
}

/// Returns the diff that the latest attempt reported.
pub fn diff(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    attempt: Option<u32>,
) -> Result<Vec<u8>, StoreError> {
    load(connection, account, id)?;
    let row = connection
        .prepare_cached(
            "SELECT diff FROM report WHERE directive_id = ?1 AND diff IS NOT NULL AND (?2 IS NULL OR attempt = ?2) ORDER BY attempt DESC LIMIT 1",
        )?
        .query_row(params![id.as_bytes(), attempt], |row| row.get(0));
    optional(row)?.ok_or(StoreError::NotFound)
}

/// Returns the receipt that the latest attempt reported.
pub fn receipt(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    attempt: Option<u32>,
) -> Result<String, StoreError> {
    load(connection, account, id)?;
    let row = connection
        .prepare_cached(
            "SELECT receipt FROM report WHERE directive_id = ?1 AND receipt IS NOT NULL AND (?2 IS NULL OR attempt = ?2) ORDER BY attempt DESC LIMIT 1",
        )?
        .query_row(params![id.as_bytes(), attempt], |row| row.get(0));
    optional(row)?.ok_or(StoreError::NotFound)
}
