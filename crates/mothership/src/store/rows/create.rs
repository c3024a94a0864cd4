//! Creation of directives.

use super::apply::lane_of;
use super::territory::DECOMMISSIONED;
use super::values::{ANY, Id, optional, text};
use super::work::{AWAITS, READY, WAITS};
use super::{approval, audit};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Account, Counters, Creation, NewDirective};
use nexus_model::directive::{OnLeaseLoss, State};
use nexus_model::ids::{DirectiveId, TerritoryId};

/// Life of an idempotency key, in milliseconds.
const KEY_LIFE_MS: i64 = 24 * 3600 * 1000;
/// Each step of priority puts a directive so far ahead.
const PRIORITY_MS: i64 = 60_000;
/// Distance between two directives of one group.
const GROUP_STEP_MS: i64 = 1_000;
const ROUTE: &str = "createDirective";

/// Stores a directive for a facility of the account.
pub fn create(
    connection: &Connection<'_>,
    account: Account,
    new: &NewDirective,
    now: i64,
) -> Result<Creation, StoreError> {
    let owner = account.id;
    let facility = new.spec.facility.id;
    if let Some((key, hash)) = &new.idempotency
        && let Some(known) = earlier(connection, account, &new.spec.directive_id, key, hash, now)?
    {
        return Ok(known);
    }
    // Locked: an end that gives the facility to the next directive comes before this one or sees it.
    let locked = connection.locked();
    let pin: Option<Option<Id>> = optional(
        connection
            .prepare_cached(&format!("SELECT pin FROM facility WHERE id = ?1 AND account_id = ?2{locked}"))?
            .query_row(params![facility.as_bytes(), owner.as_bytes()], |row| row.get(0)),
    )?;
    let pin = pin.ok_or(StoreError::NotFound)?;
    if let Some(pin) = pin {
        check_pin(connection, pin)?;
    }
    let class = class_of(connection, account, new)?;
    let rank = rank(connection, account, new, now)?;
    let taken: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM work WHERE facility_id = ?1 AND phase >= 1)")?
        .query_row(params![facility.as_bytes()], |row| row.get(0))?;
    let id = new.spec.directive_id;
    let empty = text(&Counters::default())?;
    let (phase, state) = match (&new.asks, taken) {
        (Some(_), _) => (AWAITS, State::AwaitingApproval),
        (None, true) => (WAITS, State::Queued),
        (None, false) => (READY, State::Queued),
    };
    if let Some(asks) = &new.asks {
        approval::request(connection, account, new, asks, pin, now)?;
    }
    connection
        .prepare_cached(
            "INSERT INTO work (directive_id, account_id, facility_id, pin, class_id, rank, phase, queue_until, timeout_ms, requeue,
               log_limit, out, err, asks) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, ?13)",
        )?
        .execute(params![
            id.as_bytes(),
            owner.as_bytes(),
            facility.as_bytes(),
            pin.unwrap_or(ANY),
            class,
            rank,
            phase,
            new.queue_ms.map(|ms| now.saturating_add(ms)),
            new.timeout_ms,
            new.spec.on_lease_loss == Some(OnLeaseLoss::Requeue),
            new.log_limit,
            empty,
            new.asks.is_some(),
        ])?;
    connection
        .prepare_cached(
            "INSERT INTO directive (id, account_id, facility_id, state, created_at, spec, approval_reasons, key_id)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            id.as_bytes(),
            owner.as_bytes(),
            facility.as_bytes(),
            state.name(),
            now,
            text(&new.spec)?,
            text(&new.approval_reasons)?,
            account.key,
        ])?;
    // The command may hold what no export should: its hash says enough to compare.
    let detail = serde_json::json!({
        "facility": facility, "profile": new.class.profile, "spec": nexus_model::digest::Digest::of_json(&new.spec),
        "policies": new.policies,
    });
    audit::note(connection, account, "directive.create", &format!("directive/{id}"), &detail, now)?;
    let lane =
        if phase == READY { Some(lane_of(connection, owner, class, pin.map(TerritoryId::from_bytes))?) } else { None };
    Ok(Creation::Stored { id, state, created_at: now, lane })
}

/// Refuses a facility whose files lie on a territory that was revoked: its directive would wait for ever.
fn check_pin(connection: &Connection<'_>, pin: Id) -> Result<(), StoreError> {
    let state: Option<i64> = optional(
        connection
            .prepare_cached("SELECT state FROM territory WHERE id = ?1")?
            .query_row(params![pin], |row| row.get(0)),
    )?;
    match state {
        Some(state) if state < DECOMMISSIONED => Ok(()),
        _ => Err(StoreError::TerritoryGone { territory: TerritoryId::from_bytes(pin) }),
    }
}

/// Takes the key for this directive, or returns what an earlier call made with it. A call with the same key that has not ended
/// yet is waited for.
fn earlier(
    connection: &Connection<'_>,
    account: Account,
    new: &DirectiveId,
    key: &str,
    hash: &str,
    now: i64,
) -> Result<Option<Creation>, StoreError> {
    connection
        .prepare_cached("DELETE FROM idempotency WHERE account_id = ?1 AND user_id = ?2 AND route = ?3 AND key = ?4 AND created_at < ?5
             AND NOT EXISTS (SELECT 1 FROM work w WHERE w.directive_id = idempotency.directive_id)")?
        .execute(params![account.id.as_bytes(), account.key, ROUTE, key, now - KEY_LIFE_MS])?;
    let taken = connection
        .prepare_cached(
            "INSERT INTO idempotency (account_id, user_id, route, key, body_hash, directive_id, created_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING",
        )?
        .execute(params![account.id.as_bytes(), account.key, ROUTE, key, hash, new.as_bytes(), now])?;
    if taken == 1 {
        return Ok(None);
    }
    let found = connection
        .prepare_cached(
            "SELECT i.body_hash, d.id, d.state, d.created_at FROM idempotency i JOIN directive d ON d.id = i.directive_id
               WHERE i.account_id = ?1 AND i.user_id = ?2 AND i.route = ?3 AND i.key = ?4",
        )?
        .query_row(params![account.id.as_bytes(), account.key, ROUTE, key], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Id>(1)?, row.get::<_, String>(2)?, row.get::<_, i64>(3)?))
        });
    let (known, id, state, created_at) = found?;
    if known != hash {
        return Ok(Some(Creation::OtherBody));
    }
    let id = DirectiveId::from_bytes(id);
    let state = match super::work::load(connection, &id)? {
        Some(work) => work.state(),
        None => state.parse().map_err(|_| StoreError::corrupt("directive.state"))?,
    };
    Ok(Some(Creation::Stored { id, state, created_at, lane: None }))
}

fn class_of(connection: &Connection<'_>, account: Account, new: &NewDirective) -> Result<i64, StoreError> {
    let requirements = text(&new.class)?;
    let owner = account.id.as_bytes();
    let values = params![owner, requirements];
    let mut known = connection.prepare_cached("SELECT id FROM class WHERE account_id = ?1 AND requirements = ?2")?;
    if let Some(class) = optional(known.query_row(values, |row| row.get(0)))? {
        return Ok(class);
    }
    connection
        .prepare_cached("INSERT INTO class (account_id, requirements) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(values)?;
    known.query_row(values, |row| row.get(0))
}

/// A group's directives stand one second apart, so that a group with many does not delay every other directive.
fn rank(connection: &Connection<'_>, account: Account, new: &NewDirective, now: i64) -> Result<i64, StoreError> {
    let mut base = now;
    if let Some(group) = &new.group {
        let next: i64 = connection
            .prepare_cached(
                "INSERT INTO grp (account_id, name, next_ms) VALUES (?1, ?2, ?3 + ?4) ON CONFLICT (account_id, name)
                   DO UPDATE SET next_ms = CASE WHEN grp.next_ms > ?3 THEN grp.next_ms ELSE ?3 END + ?4 RETURNING next_ms",
            )?
            .query_row(params![account.id.as_bytes(), group, now, GROUP_STEP_MS], |row| row.get(0))?;
        base = next - GROUP_STEP_MS;
    }
    Ok(base - i64::from(new.priority) * PRIORITY_MS)
}
