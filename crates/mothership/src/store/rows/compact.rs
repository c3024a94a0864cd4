//! Output of directives that are over, as one file for each stream.
//!
//! ```text
//!  over for 10 min ─▶ read the chunks ─▶ (file written, synced) ─▶ one transaction: the count is still the same ─▶ row with the
//!                                                                  index, chunks deleted
//!  a chunk that comes later ─▶ the index decides: the same bytes are a duplicate, others are refused; a gap is filled by a row beside it
//! ```

use super::values::{Id, json, optional, text};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{Compaction, IndexEntry, LogBlob};
use nexus_api::conduits::Stream;
use uuid::Uuid;

/// Time that a directive is over before its output is compacted, in milliseconds.
const REST_MS: i64 = 600_000;
/// Bytes of one stream that are compacted; what is larger stays in rows.
const MAX_BYTES: i64 = 64 << 20;

/// Returns the directive that has been over for the longest time with output in rows.
pub fn candidate(connection: &Connection<'_>, now: i64) -> Result<Option<Id>, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT id FROM directive WHERE ended_at IS NOT NULL AND kept = 2 AND ended_at < ?1 ORDER BY ended_at LIMIT 1",
        )?
        .query_row(params![now - REST_MS], |row| row.get(0));
    optional(found)
}

/// Returns the next stream of a directive that is worth a file.
pub fn stream_of(connection: &Connection<'_>, directive: &Id) -> Result<Option<Compaction>, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT c.attempt, c.stream, d.account_id, count(*)
               FROM log_chunk c JOIN directive d ON d.id = c.directive_id
               WHERE c.directive_id = ?1 AND NOT EXISTS (SELECT 1 FROM log_blob b WHERE b.directive_id = c.directive_id
                 AND b.attempt = c.attempt AND b.stream = c.stream)
               GROUP BY c.attempt, c.stream, d.account_id
               HAVING sum(length(c.bytes)) <= ?2 AND sum(length(c.bytes)) > 0 AND count(*) > 1 LIMIT 1",
        )?
        .query_row(params![directive, MAX_BYTES], |row| {
            Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, Id>(2)?, row.get::<_, i64>(3)?))
        });
    let Some((attempt, stream, account, count)) = optional(found)? else { return Ok(None) };
    let mut statement = connection.prepare_cached(
        "SELECT seq, hash, truncated, created_at, bytes FROM log_chunk
           WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3 ORDER BY seq",
    )?;
    let (mut index, mut bytes) = (Vec::new(), Vec::new());
    statement.each(params![directive, attempt, stream], |row| {
        let piece: Vec<u8> = row.get(4)?;
        index.push(IndexEntry {
            seq: row.get(0)?,
            offset: bytes.len() as u64,
            length: piece.len() as u64,
            hash: data_encoding::HEXLOWER.encode(&row.get::<_, Vec<u8>>(1)?),
            truncated: row.get(2)?,
            created_at: row.get(3)?,
        });
        bytes.extend(piece);
        Ok(true)
    })?;
    let id = *Uuid::now_v7().as_bytes();
    Ok(Some(Compaction { directive: *directive, attempt, stream, account, id, count, index, bytes }))
}

/// Notes that nothing of a directive is left to compact.
pub fn settled(connection: &Connection<'_>, directive: &Id) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE directive SET kept = 1 WHERE id = ?1 AND kept = 2")?
        .execute(params![directive])?;
    Ok(())
}

/// Puts a file that is on the disk in the place of its chunks; `false` when another chunk came meanwhile.
pub fn swap(connection: &Connection<'_>, done: &Compaction, now: i64) -> Result<bool, StoreError> {
    // A late chunk of the same directive waits here, or was counted.
    let locked = connection.locked();
    let found = connection
        .prepare_cached(&format!("SELECT id FROM directive WHERE id = ?1{locked}"))?
        .query_row(params![done.directive], |row| row.get::<_, Id>(0));
    if optional(found)?.is_none() {
        return Ok(false);
    }
    let key = params![done.directive, done.attempt, done.stream];
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM log_chunk WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3")?
        .query_row(key, |row| row.get(0))?;
    if count != done.count {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "INSERT INTO log_blob (id, account_id, directive_id, attempt, stream, chunks, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![done.id, done.account, done.directive, done.attempt, done.stream, text(&done.index)?, now])?;
    connection
        .prepare_cached("DELETE FROM log_chunk WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3")?
        .execute(params![done.directive, done.attempt, done.stream])?;
    Ok(true)
}

/// Returns the file of a stream with its index.
pub fn blob_of(
    connection: &Connection<'_>,
    directive: &Id,
    attempt: u32,
    stream: Stream,
) -> Result<Option<LogBlob>, StoreError> {
    let found = connection
        .prepare_cached(
            "SELECT id, account_id, chunks FROM log_blob WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3",
        )?
        .query_row(params![directive, attempt, stream.name()], |row| {
            Ok((row.get::<_, Id>(0)?, row.get::<_, Id>(1)?, row.get::<_, String>(2)?))
        });
    let Some((id, account, chunks)) = optional(found)? else { return Ok(None) };
    Ok(Some(LogBlob { id, account, index: json(&chunks)? }))
}
