//! The audit chain. An act writes its event in its own transaction; the event gets its place in the chain afterwards.
//!
//! ```text
//!  act ─▶ note: one row without a number ─▶ seal (every second, and before every read): number, hash, head
//! ```
//! A chain that grew inside the acts would let the acts of an account wait for one another in PostgreSQL: the end of the chain is
//! one row.

use super::values::{Id, json, optional, text};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{Account, AuditPage};
use nexus_api::Timestamp;
use nexus_api::audit::{Actor, AuditEvent, AuditHead, Check, Fault, SCHEMA, origin};
use nexus_api::audit_head::{HEAD_ACTION, SignedHead};
use nexus_model::digest::Digest;
use nexus_model::ids::{AccountId, TerritoryId};
use serde_json::Value;
use uuid::Uuid;

/// Events that one transaction gives their places.
pub const BATCH: u32 = 1_000;

/// Writes an event of a caller with an API key.
pub fn note(
    connection: &Connection<'_>,
    account: Account,
    action: &str,
    object: &str,
    detail: &Value,
    now: i64,
) -> Result<(), StoreError> {
    let id = Some(Uuid::from_bytes(account.key).to_string());
    let actor = Actor { kind: "api_key".to_owned(), id, role: Some(account.role) };
    write(connection, account.id, &actor, action, object, detail, now)
}

/// Writes an event of a territory.
pub fn note_of_territory(
    connection: &Connection<'_>,
    account: AccountId,
    territory: TerritoryId,
    action: &str,
    object: &str,
    detail: &Value,
    now: i64,
) -> Result<(), StoreError> {
    let actor = Actor { kind: "territory".to_owned(), id: Some(territory.to_string()), role: None };
    write(connection, account, &actor, action, object, detail, now)
}

/// Writes an event of the server itself.
pub fn note_of_server(
    connection: &Connection<'_>,
    account: AccountId,
    action: &str,
    object: &str,
    detail: &Value,
    now: i64,
) -> Result<(), StoreError> {
    let actor = Actor { kind: "server".to_owned(), id: None, role: None };
    write(connection, account, &actor, action, object, detail, now)
}

fn write(
    connection: &Connection<'_>,
    account: AccountId,
    actor: &Actor,
    action: &str,
    object: &str,
    detail: &Value,
    now: i64,
) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO audit_event (id, account_id, at, actor, action, object, detail) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            *Uuid::now_v7().as_bytes(),
            account.as_bytes(),
            now,
            text(actor)?,
            action,
            object,
            detail.to_string(),
        ])?;
    Ok(())
}

/// The end of a chain, and its beginning after retention.
struct Ends {
    head: AuditHead,
    first_seq: u64,
    first_prev: Digest,
}

fn ends(connection: &Connection<'_>, account: AccountId, lock: bool) -> Result<Option<Ends>, StoreError> {
    let locked = if lock { connection.locked() } else { "" };
    let question = format!("SELECT seq, hash, first_seq, first_prev FROM audit_head WHERE account_id = ?1{locked}");
    let row = connection.prepare_cached(&question)?.query_row(params![account.as_bytes()], |row| {
        let head = AuditHead { account, seq: row.get::<_, i64>(0)? as u64, hash: digest(&row.get::<_, String>(1)?)? };
        Ok(Ends { head, first_seq: row.get::<_, i64>(2)? as u64, first_prev: digest(&row.get::<_, String>(3)?)? })
    });
    optional(row)
}

fn digest(text: &str) -> Result<Digest, StoreError> {
    text.parse().map_err(|_| StoreError::corrupt("a hash of the audit chain"))
}

/// Names the accounts with events that have no place in their chain yet.
pub fn loose(connection: &Connection<'_>) -> Result<Vec<AccountId>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT DISTINCT account_id FROM audit_event WHERE seq IS NULL LIMIT 100")?;
    statement.query_all(params![], |row| Ok(AccountId::from_bytes(row.get(0)?)))
}

/// Gives the events of an account their places in its chain, at most [`BATCH`]; returns whether there may be more.
pub fn seal(connection: &Connection<'_>, account: AccountId) -> Result<bool, StoreError> {
    let start = origin(account).to_string();
    connection.execute(
        "INSERT INTO audit_head (account_id, seq, hash, first_seq, first_prev) VALUES (?1, 0, ?2, 1, ?2) ON CONFLICT DO NOTHING",
        params![account.as_bytes(), start],
    )?;
    // Servers that seal at the same time do it one after the other.
    let ends = ends(connection, account, true)?.ok_or_else(|| StoreError::corrupt("audit_head"))?;
    let mut statement = connection.prepare_cached(
        "SELECT id, at, actor, action, object, detail FROM audit_event WHERE account_id = ?1 AND seq IS NULL
           ORDER BY id LIMIT ?2",
    )?;
    let loose = statement.query_all(params![account.as_bytes(), BATCH], |row| {
        let event = (row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?);
        Ok((row.get::<_, Id>(0)?, event))
    })?;
    let mut head = ends.head;
    let mut place = connection.prepare_cached("UPDATE audit_event SET seq = ?2, prev = ?3, hash = ?4 WHERE id = ?1")?;
    for (id, columns) in &loose {
        let event = event(account, head.seq + 1, head.hash, columns)?.sealed();
        place.execute(params![id, event.seq as i64, event.prev.to_string(), event.hash.to_string()])?;
        head = AuditHead { account, seq: event.seq, hash: event.hash };
    }
    if !loose.is_empty() {
        connection.execute(
            "UPDATE audit_head SET seq = ?2, hash = ?3 WHERE account_id = ?1",
            params![account.as_bytes(), head.seq as i64, head.hash.to_string()],
        )?;
    }
    Ok(loose.len() == BATCH as usize)
}

/// Writes a signed head as an event of each chain whose last event is not one.
pub fn note_heads(
    connection: &Connection<'_>,
    sign: &dyn Fn(AuditHead) -> SignedHead,
    now: i64,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT h.account_id, h.seq, h.hash FROM audit_head h JOIN audit_event e ON e.account_id = h.account_id AND e.seq = h.seq
           WHERE e.action <> ?1",
    )?;
    let grown = statement.query_all(params![HEAD_ACTION], |row| {
        let account = AccountId::from_bytes(row.get(0)?);
        Ok(AuditHead { account, seq: row.get::<_, i64>(1)? as u64, hash: digest(&row.get::<_, String>(2)?)? })
    })?;
    for head in grown {
        let detail = serde_json::to_value(sign(head)).map_err(|error| StoreError::corrupt(error.to_string()))?;
        note_of_server(connection, head.account, HEAD_ACTION, &format!("audit/{}", head.seq), &detail, now)?;
    }
    Ok(())
}

/// Columns of an event: time, actor, action, object, detail.
type Columns = (i64, String, String, String, String);

fn event(account: AccountId, seq: u64, prev: Digest, columns: &Columns) -> Result<AuditEvent, StoreError> {
    let (at, actor, action, object, detail) = columns;
    Ok(AuditEvent {
        schema: SCHEMA.to_owned(),
        account,
        seq,
        at: Timestamp(*at),
        actor: json(actor)?,
        action: action.clone(),
        object: object.clone(),
        detail: json(detail)?,
        prev,
        hash: prev,
    })
}

fn stored(row: &Row<'_>, account: AccountId) -> Result<AuditEvent, StoreError> {
    let columns = (row.get("at")?, row.get("actor")?, row.get("action")?, row.get("object")?, row.get("detail")?);
    let prev = digest(&row.get::<_, String>("prev")?)?;
    let event = event(account, row.get::<_, i64>("seq")? as u64, prev, &columns)?;
    Ok(AuditEvent { hash: digest(&row.get::<_, String>("hash")?)?, ..event })
}

const SELECT: &str = "SELECT seq, prev, hash, at, actor, action, object, detail FROM audit_event";

/// Returns events after a number in their order, or before a number in the reverse order.
pub fn page(
    connection: &Connection<'_>,
    account: AccountId,
    after: Option<u64>,
    before: Option<u64>,
    limit: u32,
) -> Result<AuditPage, StoreError> {
    let Some(ends) = ends(connection, account, false)? else {
        let hash = origin(account);
        let head = AuditHead { account, seq: 0, hash };
        return Ok(AuditPage { events: Vec::new(), head, first_seq: 1 });
    };
    let number = |seq: Option<u64>| seq.map_or(i64::MAX, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let (question, bound) = match after {
        Some(after) => ("seq > ?2 ORDER BY seq", number(Some(after))),
        None => ("seq < ?2 ORDER BY seq DESC", number(before)),
    };
    let mut statement =
        connection.prepare_cached(&format!("{SELECT} WHERE account_id = ?1 AND {question} LIMIT ?3"))?;
    let events = statement.query_all(params![account.as_bytes(), bound, limit], |row| stored(row, account))?;
    Ok(AuditPage { events, head: ends.head, first_seq: ends.first_seq })
}

/// Checks the chain of an account in one snapshot: the number of its events, and its faults.
pub fn verify(connection: &Connection<'_>, account: AccountId) -> Result<(u64, Vec<Fault>), StoreError> {
    let Some(ends) = ends(connection, account, false)? else { return Ok((0, Vec::new())) };
    let mut check = Check::new(account, Some((ends.first_seq, ends.first_prev)));
    let mut statement =
        connection.prepare_cached(&format!("{SELECT} WHERE account_id = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"))?;
    let mut last = 0;
    loop {
        let events =
            statement.query_all(params![account.as_bytes(), last as i64, BATCH], |row| stored(row, account))?;
        for event in &events {
            check.push(event);
            last = event.seq;
        }
        if events.len() < BATCH as usize {
            return Ok(check.end(Some(ends.head)));
        }
    }
}

/// Removes events that are older than their days from the front of the chains; returns how many. The head keeps what the first
/// one that is left must name.
pub fn retain(connection: &Connection<'_>, before: i64, limit: u32) -> Result<u64, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT e.account_id, e.seq, e.hash FROM audit_event e JOIN audit_head h ON h.account_id = e.account_id
           WHERE e.seq IS NOT NULL AND e.seq < h.seq AND e.seq < h.first_seq + ?2 AND e.at < ?1
           ORDER BY e.account_id, e.seq LIMIT ?2",
    )?;
    let old = statement.query_all(params![before, limit], |row| {
        Ok((row.get::<_, Id>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
    })?;
    let mut removed = 0;
    for (account, seq, hash) in old {
        // The front alone: an event that is old and stands behind a younger one waits for that one.
        let moved = connection.execute(
            "UPDATE audit_head SET first_seq = ?2 + 1, first_prev = ?3 WHERE account_id = ?1 AND first_seq = ?2",
            params![account, seq, hash],
        )?;
        if moved == 1 {
            connection.execute("DELETE FROM audit_event WHERE account_id = ?1 AND seq = ?2", params![account, seq])?;
            removed += 1;
        }
    }
    Ok(removed)
}
