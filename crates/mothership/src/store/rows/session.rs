//! Sessions of the console. The secret of a session is stored as a hash, and a session is worth its key: both end together.

use super::audit;
use super::values::{Id, named, optional};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Account, ConsoleSession, SecretHash};
use nexus_model::ids::AccountId;
use serde_json::json;
use uuid::Uuid;

/// Life of a session, in milliseconds.
pub const LIFE_MS: i64 = 12 * 3_600_000;
/// Life of a session without a use, in milliseconds.
const IDLE_MS: i64 = 3_600_000;
/// Uses within this time are not written.
const TOUCH_MS: i64 = 60_000;

/// Stores a session of the caller.
pub fn create_session(
    connection: &Connection<'_>,
    account: Account,
    hash: &SecretHash,
    now: i64,
) -> Result<(), StoreError> {
    connection.execute(
        "INSERT INTO console_session (hash, id, account_id, key_id, created_at, seen_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
        params![hash, *Uuid::now_v7().as_bytes(), account.id.as_bytes(), account.key, now],
    )?;
    audit::note(connection, account, "session.begin", "console", &json!({}), now)
}

/// Returns the account of a session that is not over, and whether its use has to be written.
pub fn session(
    connection: &Connection<'_>,
    hash: &SecretHash,
    now: i64,
) -> Result<Option<(Account, bool)>, StoreError> {
    let row = connection
        .prepare_cached(
            "SELECT k.id, k.account_id, k.role, s.seen_at FROM console_session s
               JOIN api_key k ON k.id = s.key_id AND k.account_id = s.account_id
               WHERE s.hash = ?1 AND s.created_at > ?2 AND s.seen_at > ?3",
        )?
        .query_row(params![hash, now - LIFE_MS, now - IDLE_MS], |row| {
            Ok((row.get::<_, Id>(0)?, row.get::<_, Id>(1)?, row.get::<_, String>(2)?, row.get::<_, i64>(3)?))
        });
    let Some((key, account, role, seen_at)) = optional(row)? else { return Ok(None) };
    let account = Account { id: AccountId::from_bytes(account), key, role: named(&role)? };
    Ok(Some((account, now - seen_at > TOUCH_MS)))
}

/// Notes that a session was used.
pub fn touch_session(connection: &Connection<'_>, hash: &SecretHash, now: i64) -> Result<(), StoreError> {
    connection
        .execute("UPDATE console_session SET seen_at = ?2 WHERE hash = ?1 AND seen_at < ?2", params![hash, now])?;
    Ok(())
}

/// Ends the session with this secret.
pub fn end_session(
    connection: &Connection<'_>,
    account: Account,
    hash: &SecretHash,
    now: i64,
) -> Result<(), StoreError> {
    if connection.execute("DELETE FROM console_session WHERE hash = ?1", params![hash])? == 1 {
        audit::note(connection, account, "session.end", "console", &json!({}), now)?;
    }
    Ok(())
}

/// Ends a session of the account by its id.
pub fn revoke_session(connection: &Connection<'_>, account: Account, id: &Id, now: i64) -> Result<(), StoreError> {
    let changed = connection
        .execute("DELETE FROM console_session WHERE id = ?1 AND account_id = ?2", params![id, account.id.as_bytes()])?;
    if changed == 0 {
        return Err(StoreError::NotFound);
    }
    let object = format!("session/{}", Uuid::from_bytes(*id));
    audit::note(connection, account, "session.revoke", &object, &json!({}), now)
}

/// Returns the sessions of the account that are not over, the latest first.
pub fn sessions(connection: &Connection<'_>, account: Account, now: i64) -> Result<Vec<ConsoleSession>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.id, s.created_at, s.seen_at, k.role, k.name, s.hash FROM console_session s JOIN api_key k ON k.id = s.key_id
           WHERE s.account_id = ?1 AND s.created_at > ?2 AND s.seen_at > ?3 ORDER BY s.id DESC LIMIT 200",
    )?;
    statement.query_all(params![account.id.as_bytes(), now - LIFE_MS, now - IDLE_MS], |row| {
        Ok(ConsoleSession {
            id: Uuid::from_bytes(row.get(0)?).to_string(),
            created_at: row.get(1)?,
            seen_at: row.get(2)?,
            role: named(&row.get::<_, String>(3)?)?,
            key_name: row.get(4)?,
            hash: row.get(5)?,
        })
    })
}
