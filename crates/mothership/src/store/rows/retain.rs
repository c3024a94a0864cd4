//! Removes what is older than its days, in small batches.
//!
//! ```text
//!  ended + log_ms    ─▶ output, diff, events, kept files; the directive itself, its end and its receipt stay
//!  trail + audit_ms  ─▶ the trail of territories, the front of the audit chains, approvals that are over
//!  keys, tokens, counts of enrolments ─▶ when they mean nothing any more
//! ```
//! Rows go first: a file of a kept file that has no row is removed afterwards, and by every later sweep.

use super::values::{Id, json, text};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Counters, Retention, Swept};

/// Life of an idempotency key, in milliseconds.
const KEY_LIFE_MS: i64 = 24 * 3_600_000;
/// Time after which a spent or expired enrolment token is forgotten: a lost answer was repeated by then.
const TOKEN_REST_MS: i64 = 3_600_000;
const HOUR_MS: i64 = 3_600_000;

/// Removes one batch of each kind.
pub fn sweep(connection: &Connection<'_>, times: Retention, now: i64) -> Result<Swept, StoreError> {
    let mut swept = Swept::default();
    let batch = i64::from(times.batch);
    for id in ended_before(connection, now - times.log_ms, batch)? {
        swept.blobs.extend(remove(connection, &id)?);
        swept.directives += 1;
    }
    let trail = "DELETE FROM trail WHERE id IN (SELECT id FROM trail WHERE at < ?1 ORDER BY id LIMIT ?2)";
    swept.rows += connection.prepare_cached(trail)?.execute(params![now - times.audit_ms, batch])? as u64;
    let keys = "DELETE FROM idempotency WHERE (account_id, user_id, route, key) IN (
                  SELECT i.account_id, i.user_id, i.route, i.key FROM idempotency i WHERE i.created_at < ?1
                    AND NOT EXISTS (SELECT 1 FROM work w WHERE w.directive_id = i.directive_id) LIMIT ?2)";
    swept.rows += connection.prepare_cached(keys)?.execute(params![now - KEY_LIFE_MS, batch])? as u64;
    let tokens = "DELETE FROM enroll_token WHERE hash IN (SELECT hash FROM enroll_token
                    WHERE expires_at < ?1 AND coalesce(used_at, 0) < ?1 LIMIT ?2)";
    swept.rows += connection.prepare_cached(tokens)?.execute(params![now - TOKEN_REST_MS, batch])? as u64;
    let rates = "DELETE FROM enroll_rate WHERE (source, hour) IN (SELECT source, hour FROM enroll_rate WHERE hour < ?1 LIMIT ?2)";
    swept.rows += connection.prepare_cached(rates)?.execute(params![now / HOUR_MS - 2, batch])? as u64;
    swept.rows += super::audit::retain(connection, now - times.audit_ms, times.batch)?;
    let approvals =
        "DELETE FROM approval WHERE id IN (SELECT id FROM approval WHERE NOT live AND expires_at < ?1 LIMIT ?2)";
    swept.rows += connection.prepare_cached(approvals)?.execute(params![now - times.audit_ms, batch])? as u64;
    let connections = "DELETE FROM connection_approval WHERE id IN
         (SELECT id FROM connection_approval WHERE NOT live AND expires_at < ?1 LIMIT ?2)";
    swept.rows += connection.prepare_cached(connections)?.execute(params![now - times.audit_ms, batch])? as u64;
    let sessions = "DELETE FROM console_session WHERE created_at < ?1";
    swept.rows += connection.execute(sessions, params![now - super::session::LIFE_MS])? as u64;
    swept.more = swept.directives >= u64::from(times.batch);
    Ok(swept)
}

/// Directives that ended before a time and still have output, a diff, events or kept files.
fn ended_before(connection: &Connection<'_>, before: i64, batch: i64) -> Result<Vec<Id>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM directive WHERE ended_at IS NOT NULL AND kept >= 1 AND ended_at < ?1 ORDER BY ended_at LIMIT ?2",
    )?;
    statement.query_all(params![before, batch], |row| row.get(0))
}

/// Names the files of a directive, as (account, id).
fn blobs_of(connection: &Connection<'_>, directive: &Id) -> Result<Vec<(Id, Id)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT account_id, id FROM artifact WHERE directive_id = ?1
           UNION ALL SELECT account_id, id FROM log_blob WHERE directive_id = ?1",
    )?;
    statement.query_all(params![directive], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Removes the rows of a directive and names their files.
fn remove(connection: &Connection<'_>, directive: &Id) -> Result<Vec<(Id, Id)>, StoreError> {
    let locked = connection.locked();
    let (out, err): (Option<String>, Option<String>) = connection
        .prepare_cached(&format!("SELECT out, err FROM directive WHERE id = ?1{locked}"))?
        .query_row(params![directive], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // A reader must not take the missing output for none.
    let cut = |counters: Option<String>| -> Result<String, StoreError> {
        let counters: Counters = counters.as_deref().map_or_else(|| Ok(Counters::default()), json)?;
        text(&Counters { truncated: counters.truncated || counters.count > 0, ..counters })
    };
    connection
        .prepare_cached("UPDATE directive SET out = ?2, err = ?3, kept = 0, version = version + 1 WHERE id = ?1")?
        .execute(params![directive, cut(out)?, cut(err)?])?;
    let blobs = blobs_of(connection, directive)?;
    for statement in [
        "DELETE FROM log_chunk WHERE directive_id = ?1",
        "DELETE FROM log_blob WHERE directive_id = ?1",
        "DELETE FROM directive_event WHERE directive_id = ?1",
        "DELETE FROM artifact WHERE directive_id = ?1",
        "UPDATE report SET diff = NULL WHERE directive_id = ?1",
    ] {
        connection.prepare_cached(statement)?.execute(params![directive])?;
    }
    Ok(blobs)
}

/// Returns the latest time at which a territory spoke to a server.
pub fn last_seen(connection: &Connection<'_>) -> Result<Option<i64>, StoreError> {
    connection.prepare_cached("SELECT max(last_seen) FROM presence")?.query_row(params![], |row| row.get(0))
}

/// Reports which of these files have a row.
pub fn known_blobs(connection: &Connection<'_>, ids: &[Id]) -> Result<Vec<bool>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM artifact WHERE id = ?1) OR EXISTS (SELECT 1 FROM log_blob WHERE id = ?1)",
    )?;
    ids.iter().map(|id| statement.query_row(params![id], |row| row.get(0))).collect()
}
