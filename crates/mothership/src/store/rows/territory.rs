//! Territories: heartbeats, state, facts.

use super::audit;
use super::enroll::trail;
use super::report::directive_beat;
use super::values::{Id, json, named, optional, text};
use crate::decide::{healthy_profiles, room};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{Account, Holding, LeaseTimes, Offer, Presence, Reported, Territory, TerritoryFacts};
use nexus_api::Timestamp;
use nexus_api::conduits::{Capacity, Verdict};
use nexus_api::mothership::{Territory as TerritoryView, TerritoryStatus};
use nexus_model::directive::Fence;
use nexus_model::ids::{AccountId, DirectiveId, TerritoryId};

const ACTIVE: i64 = 1;
/// Finishes its directives and takes no others.
pub const DRAINING: i64 = 2;
/// Has no access any more.
pub const DECOMMISSIONED: i64 = 3;

/// Returns the territory with this id, for the development header.
pub fn territory_account(connection: &Connection<'_>, id: TerritoryId) -> Result<Option<Territory>, StoreError> {
    let account: Option<Id> = optional(
        connection
            .prepare_cached("SELECT account_id FROM territory WHERE id = ?1 AND state < 3")?
            .query_row(params![id.as_bytes()], |row| row.get(0)),
    )?;
    Ok(account.map(|account| Territory { id, account: AccountId::from_bytes(account) }))
}

/// Stores a heartbeat and returns the decision about each directive that it names.
pub fn presence(
    connection: &Connection<'_>,
    territory: Territory,
    beat: &Presence,
    times: LeaseTimes,
    now: i64,
) -> Result<Vec<(DirectiveId, Fence, u32, Verdict)>, StoreError> {
    let locked = connection.locked();
    let before: Option<Option<i64>> = optional(
        connection
            .prepare_cached(&format!("SELECT last_seen FROM presence WHERE territory_id = ?1{locked}"))?
            .query_row(params![territory.id.as_bytes()], |row| row.get(0)),
    )?;
    if before.flatten().is_none_or(|seen| now - seen > times.offline_ms) {
        trail(connection, territory.account, territory.id, "online", "heartbeat", now)?;
    }
    connection
        .prepare_cached(
            "UPDATE presence SET last_seen = ?2, labels = coalesce(?3, labels), capacity = coalesce(?4, capacity),
               nexus_version = coalesce(?5, nexus_version), protocol_version = ?6, running = coalesce(?7, running)
               WHERE territory_id = ?1",
        )?
        .execute(params![
            territory.id.as_bytes(),
            now,
            beat.labels.as_ref().map(text).transpose()?,
            beat.capacity.as_ref().map(text).transpose()?,
            beat.nexus_version,
            beat.protocol_version.as_ref().map(serde_json::Value::to_string),
            beat.running,
        ])?;
    let mut verdicts = Vec::new();
    for (directive, fence, progress) in &beat.directives {
        let holding = Holding { directive: *directive, fence: *fence };
        let (attempt, verdict) = match directive_beat(connection, territory, holding, progress.as_ref(), times, now) {
            Ok(Reported::Done(beat)) => (beat.attempt, beat.verdict),
            Ok(_) | Err(StoreError::NotFound) => (0, Verdict::Lost),
            Err(error) => return Err(error),
        };
        verdicts.push((*directive, *fence, attempt, verdict));
    }
    Ok(verdicts)
}

const SELECT: &str =
    "SELECT t.id, t.state, t.kind, t.name, t.display_name, t.platform, t.created_at, p.last_seen, p.labels, p.capacity,
      p.guarantees, p.profiles, p.nexus_version, p.protocol_version, p.running,
      (SELECT count(*) FROM work w WHERE w.holder = t.id AND w.phase >= 2) AS open
    FROM territory t JOIN presence p ON p.territory_id = t.id";

/// Columns of a territory as text and numbers.
struct Found {
    id: TerritoryId,
    state: i64,
    kind: String,
    name: Option<String>,
    display_name: Option<String>,
    platform: Option<String>,
    created_at: i64,
    last_seen: Option<i64>,
    labels: String,
    capacity: String,
    guarantees: String,
    profiles: String,
    nexus_version: Option<String>,
    protocol_version: Option<String>,
    running: u32,
    open: u32,
}

fn found(row: &Row<'_>) -> Result<Found, StoreError> {
    Ok(Found {
        id: TerritoryId::from_bytes(row.get("id")?),
        state: row.get("state")?,
        kind: row.get("kind")?,
        name: row.get("name")?,
        display_name: row.get("display_name")?,
        platform: row.get("platform")?,
        created_at: row.get("created_at")?,
        last_seen: row.get("last_seen")?,
        labels: row.get("labels")?,
        capacity: row.get("capacity")?,
        guarantees: row.get("guarantees")?,
        profiles: row.get("profiles")?,
        nexus_version: row.get("nexus_version")?,
        protocol_version: row.get("protocol_version")?,
        running: row.get("running")?,
        open: row.get("open")?,
    })
}

/// Returns the facts that decide which directives the territory gets. With an offer its profiles and guarantees are kept for
/// the reasons that users read.
pub fn facts(
    connection: &Connection<'_>,
    territory: Territory,
    offer: Option<&Offer>,
    times: LeaseTimes,
    now: i64,
) -> Result<TerritoryFacts, StoreError> {
    if let Some(offer) = offer {
        let profiles = text(&offer.profiles)?;
        let guarantees = offer.guarantees.as_ref().map(text).transpose()?;
        connection
            .prepare_cached(
                "UPDATE presence SET profiles = ?2, guarantees = coalesce(?3, guarantees)
                   WHERE territory_id = ?1 AND (profiles <> ?2 OR guarantees <> coalesce(?3, guarantees))",
            )?
            .execute(params![territory.id.as_bytes(), profiles, guarantees])?;
    }
    let row = connection
        .prepare_cached(&format!("{SELECT} WHERE t.id = ?1 AND t.account_id = ?2"))?
        .query_row(params![territory.id.as_bytes(), territory.account.as_bytes()], found)?;
    facts_of(&row, offer, times, now)
}

fn facts_of(row: &Found, offer: Option<&Offer>, times: LeaseTimes, now: i64) -> Result<TerritoryFacts, StoreError> {
    let capacity: Capacity = json(&row.capacity)?;
    let max = match offer {
        Some(offer) => room(&capacity, offer),
        None => capacity.max_concurrent.unwrap_or(0),
    };
    Ok(TerritoryFacts {
        id: row.id,
        active: row.state == ACTIVE,
        online: row.last_seen.is_some_and(|seen| now - seen <= times.offline_ms),
        profiles: healthy_profiles(&json::<Vec<String>>(&row.profiles)?, &capacity),
        guarantees: json(&row.guarantees)?,
        labels: json(&row.labels)?,
        capacity: max,
        open: row.open.max(if offer.is_some() { 0 } else { row.running }),
    })
}

/// Returns the facts of all territories of an account.
pub fn all_facts(
    connection: &Connection<'_>,
    account: AccountId,
    times: LeaseTimes,
    now: i64,
) -> Result<Vec<TerritoryFacts>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE t.account_id = ?1 AND t.state < 3"))?;
    let rows = statement.query_all(params![account.as_bytes()], found)?;
    rows.iter().map(|row| facts_of(row, None, times, now)).collect()
}

/// Returns the territories of an account as users see them; with an id that one alone.
pub fn territories(
    connection: &Connection<'_>,
    account: Account,
    only: Option<TerritoryId>,
    times: LeaseTimes,
    now: i64,
) -> Result<Vec<TerritoryView>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "{SELECT} WHERE t.account_id = ?1 AND (?2 IS NULL OR t.id = ?2) ORDER BY t.id LIMIT 1000"
    ))?;
    let only = only.map(|id| *id.as_bytes());
    let rows = statement.query_all(params![account.id.as_bytes(), only], found)?;
    let views = rows.iter().map(|row| view(row, times, now)).collect::<Result<Vec<_>, _>>()?;
    if only.is_some() && views.is_empty() { Err(StoreError::NotFound) } else { Ok(views) }
}

fn view(row: &Found, times: LeaseTimes, now: i64) -> Result<TerritoryView, StoreError> {
    let online = row.last_seen.is_some_and(|seen| now - seen <= times.offline_ms);
    let status = match row.state {
        DECOMMISSIONED => TerritoryStatus::Decommissioned,
        _ if !online => TerritoryStatus::Offline,
        DRAINING => TerritoryStatus::Draining,
        _ => TerritoryStatus::Online,
    };
    Ok(TerritoryView {
        territory_id: row.id,
        name: row.name.clone(),
        display_name: row.display_name.clone(),
        kind: named(&row.kind)?,
        status,
        labels: json(&row.labels)?,
        capacity: json(&row.capacity)?,
        guarantees: json(&row.guarantees)?,
        load: row.open,
        platform: row.platform.as_deref().map(json).transpose()?,
        nexus_version: row.nexus_version.clone(),
        protocol_version: row.protocol_version.as_deref().map(json).transpose()?,
        created_at: Timestamp(row.created_at),
        last_seen_at: row.last_seen.map(Timestamp),
    })
}

/// Sets the state of a territory of the account. A territory that was decommissioned stays so; revoking it also revokes its
/// certificates.
pub fn set_state(
    connection: &Connection<'_>,
    account: Account,
    id: TerritoryId,
    state: i64,
    now: i64,
) -> Result<(), StoreError> {
    let changed = connection.execute(
        "UPDATE territory SET state = CASE WHEN state < ?3 THEN ?3 ELSE state END WHERE id = ?1 AND account_id = ?2",
        params![id.as_bytes(), account.id.as_bytes(), state],
    )?;
    if changed == 0 {
        return Err(StoreError::NotFound);
    }
    if state == DECOMMISSIONED {
        connection.execute("UPDATE certificate SET revoked = TRUE WHERE territory_id = ?1", params![id.as_bytes()])?;
    }
    let event = if state == DECOMMISSIONED { "revoked" } else { "draining" };
    trail(connection, account.id, id, event, account.role.name(), now)?;
    let action = if state == DECOMMISSIONED { "territory.revoke" } else { "territory.drain" };
    audit::note(connection, account, action, &format!("territory/{id}"), &serde_json::json!({}), now)
}
