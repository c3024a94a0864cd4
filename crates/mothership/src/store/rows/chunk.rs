//! Output of directives.

use super::apply::{LATE_MS, alter_over, over};
use super::compact::blob_of;
use super::values::{json, optional, text};
use super::work::{self, place};
use crate::decide::log_limit;
use crate::identity::sha256;
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::{
    Account, ChunkBytes, ChunkQuery, ChunkState, Counters, EndResult, Holding, LogBlob, NewChunk, Reported,
    StoredChunk, Territory,
};
use nexus_model::directive::{Fence, Refusal, State};
use nexus_model::ids::DirectiveId;
use nexus_model::spec::DirectiveSpec;

/// Bytes of the bound that each row counts for when a chunk without bytes comes.
const EMPTY_COST: i64 = 64;

/// Attempt, counters and bound of the directive that a chunk belongs to.
pub(super) struct Target {
    /// Count of its claims.
    pub(super) attempt: u32,
    counters: [Counters; 2],
    log_limit: i64,
    is_over: bool,
}

/// Use of the rows that [`target`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Reads,
    /// Others who change it wait.
    Changes,
}

/// Chunks are taken while the directive runs, and afterwards for the attempt that ended it: also for one whose end the server assumed, as
/// long as that may tell the true one.
pub(super) fn target(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    purpose: Use,
    now: i64,
) -> Result<Result<Target, Refusal>, StoreError> {
    let live = match purpose {
        Use::Reads => work::load(connection, &holding.directive)?,
        Use::Changes => work::alter(connection, &holding.directive)?,
    };
    if let Some(work) = live {
        if work.account != territory.account {
            return Err(StoreError::NotFound);
        }
        if work.fence != holding.fence {
            return Ok(Err(Refusal::StaleFence { given: holding.fence, present: work.fence }));
        }
        if work.holder != Some(*territory.id.as_bytes()) || work.state() != State::Running {
            return Ok(Err(Refusal::WrongState { state: work.state() }));
        }
        let (counters, log_limit) = (work.counters, work.log_limit);
        return Ok(Ok(Target { attempt: work.attempt, counters, log_limit, is_over: false }));
    }
    let over = match purpose {
        Use::Reads => over(connection, &holding.directive)?,
        Use::Changes => alter_over(connection, &holding.directive)?,
    };
    let over = over.filter(|over| over.account == territory.account).ok_or(StoreError::NotFound)?;
    if over.fence != holding.fence.0 {
        return Ok(Err(Refusal::StaleFence { given: holding.fence, present: Fence(over.fence) }));
    }
    if over.payload_hash.is_none() && !over.may_be_reported_by(territory.id, now) {
        // The server ended it, and knows that nothing came of the run.
        return Ok(Err(Refusal::Over { state: over.state }));
    }
    let (out, err, spec, result): (Option<String>, Option<String>, String, Option<String>) = connection
        .prepare_cached("SELECT out, err, spec, result FROM directive WHERE id = ?1")?
        .query_row(params![holding.directive.as_bytes()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
    let result: EndResult = result.map_or_else(|| Ok(EndResult::default()), |text| json(&text))?;
    if over.payload_hash.is_some()
        && now >= result.reported_at.or(over.ended_at).unwrap_or_default().saturating_add(LATE_MS)
    {
        return Ok(Err(Refusal::Over { state: over.state }));
    }
    let read = |text: Option<String>| text.map_or_else(|| Ok(Counters::default()), |text| json(&text));
    let (counters, spec) = ([read(out)?, read(err)?], json::<DirectiveSpec>(&spec)?);
    Ok(Ok(Target { attempt: over.attempt, counters, log_limit: log_limit(&spec), is_over: true }))
}

/// Stores a chunk once. The same number with other bytes is refused.
pub fn put_chunk(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    chunk: &NewChunk,
    now: i64,
) -> Result<Reported<ChunkState>, StoreError> {
    let target = match target(connection, territory, holding, Use::Changes, now)? {
        Ok(target) => target,
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    let id = holding.directive.as_bytes();
    let hash = sha256(&chunk.bytes);
    let stream = chunk.stream.name();
    let known: Option<Vec<u8>> = optional(
        connection
            .prepare_cached(
                "SELECT hash FROM log_chunk WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3 AND seq = ?4",
            )?
            .query_row(params![id, target.attempt, stream, chunk.seq], |row| row.get(0)),
    )?;
    if let Some(known) = known {
        let same = known == hash;
        return Ok(if same { Reported::Done(ChunkState { stored: true, duplicate: true }) } else { Reported::Differs });
    }
    // The output may lie in a file already: its index says what is known.
    if target.is_over
        && let Some(blob) = blob_of(connection, id, target.attempt, chunk.stream)?
        && let Some(entry) = blob.index.iter().find(|entry| entry.seq == chunk.seq)
    {
        let same = entry.hash == data_encoding::HEXLOWER.encode(&hash);
        return Ok(if same { Reported::Done(ChunkState { stored: true, duplicate: true }) } else { Reported::Differs });
    }
    let stored: i64 = target.counters.iter().map(|counters| counters.bytes).sum();
    let rows: i64 = target.counters.iter().map(|counters| counters.count).sum();
    // An empty chunk is a row, too, and there may be as many of them as a full log has short ones.
    let cost = if chunk.bytes.is_empty() { EMPTY_COST * (rows + 1) } else { chunk.bytes.len() as i64 };
    if stored + cost > target.log_limit {
        let mut counters = target.counters;
        counters[place(chunk.stream)].truncated = true;
        write_counters(connection, holding.directive, &counters, !target.is_over)?;
        return Ok(Reported::Done(ChunkState { stored: false, duplicate: false }));
    }
    connection.prepare_cached("INSERT INTO log_chunk (directive_id, attempt, stream, seq, hash, truncated, created_at, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?.execute(params![
        id,
        target.attempt,
        stream,
        chunk.seq,
        hash,
        chunk.truncated,
        now,
        chunk.bytes
    ])?;
    let mut counters = target.counters;
    let here = &mut counters[place(chunk.stream)];
    here.count += 1;
    here.top = here.top.max(chunk.seq);
    here.bytes += chunk.bytes.len() as i64;
    here.truncated |= chunk.truncated;
    if chunk.seq == here.next {
        here.next = contiguous(connection, holding.directive, target.attempt, stream, chunk.seq)?;
    }
    write_counters(connection, holding.directive, &counters, !target.is_over)?;
    Ok(Reported::Done(ChunkState { stored: true, duplicate: false }))
}

/// Returns the first number after `from` that is missing.
fn contiguous(
    connection: &Connection<'_>,
    id: DirectiveId,
    attempt: u32,
    stream: &str,
    from: i64,
) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq FROM log_chunk WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3 AND seq > ?4 ORDER BY seq",
    )?;
    let mut next = from + 1;
    statement.each(params![id.as_bytes(), attempt, stream, from], |row| {
        let is_next = row.get::<_, i64>(0)? == next;
        next += i64::from(is_next);
        Ok(is_next)
    })?;
    Ok(next)
}

fn write_counters(
    connection: &Connection<'_>,
    id: DirectiveId,
    counters: &[Counters; 2],
    live: bool,
) -> Result<(), StoreError> {
    let statement = if live {
        "UPDATE work SET out = ?2, err = ?3, version = version + 1 WHERE directive_id = ?1"
    } else {
        "UPDATE directive SET out = ?2, err = ?3, version = version + 1 WHERE id = ?1"
    };
    connection.prepare_cached(statement)?.execute(params![id.as_bytes(), text(&counters[0])?, text(&counters[1])?])?;
    Ok(())
}

/// Stores a batch of events once.
pub fn put_events(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    seq: i64,
    events: &str,
    now: i64,
) -> Result<Reported<bool>, StoreError> {
    let target = match target(connection, territory, holding, Use::Changes, now)? {
        Ok(target) => target,
        Err(refusal) => return Ok(Reported::Refused(refusal)),
    };
    let id = holding.directive.as_bytes();
    let known: Option<String> = optional(
        connection
            .prepare_cached("SELECT events FROM directive_event WHERE directive_id = ?1 AND attempt = ?2 AND seq = ?3")?
            .query_row(params![id, target.attempt, seq], |row| row.get(0)),
    )?;
    match known {
        Some(known) if known == events => Ok(Reported::Done(true)),
        Some(_) => Ok(Reported::Differs),
        None => {
            connection
                .prepare_cached(
                    "INSERT INTO directive_event (directive_id, attempt, seq, events) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![id, target.attempt, seq, events])?;
            Ok(Reported::Done(false))
        }
    }
}

/// Returns the typed events of the account's directive, in the order of their batches.
pub fn events(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    attempt: Option<u32>,
) -> Result<Vec<serde_json::Value>, StoreError> {
    let latest = latest(connection, account, id)?;
    let mut statement = connection
        .prepare_cached("SELECT events FROM directive_event WHERE directive_id = ?1 AND attempt = ?2 ORDER BY seq")?;
    let rows = statement.query_all(params![id.as_bytes(), attempt.unwrap_or(latest)], |row| row.get::<_, String>(0))?;
    let mut found = Vec::new();
    for row in rows {
        found.extend(json::<Vec<serde_json::Value>>(&row)?);
    }
    Ok(found)
}

/// Returns the latest attempt of the account's directive.
fn latest(connection: &Connection<'_>, account: Account, id: DirectiveId) -> Result<u32, StoreError> {
    let latest: Option<u32> = optional(
        connection
            .prepare_cached(
                "SELECT coalesce(w.attempt, d.attempt) FROM directive d LEFT JOIN work w ON w.directive_id = d.id
                   WHERE d.id = ?1 AND d.account_id = ?2",
            )?
            .query_row(params![id.as_bytes(), account.id.as_bytes()], |row| row.get(0)),
    )?;
    latest.ok_or(StoreError::NotFound)
}

/// Returns chunks of the account's directive after a number.
pub fn chunks(
    connection: &Connection<'_>,
    account: Account,
    id: DirectiveId,
    query: ChunkQuery,
) -> Result<Vec<StoredChunk>, StoreError> {
    let latest = latest(connection, account, id)?;
    let attempt = query.attempt.unwrap_or(latest);
    let mut all = Vec::new();
    if let Some(LogBlob { id, account, index }) = blob_of(connection, id.as_bytes(), attempt, query.stream)? {
        all.extend(index.into_iter().filter(|entry| entry.seq > query.after).map(|entry| {
            let bytes = ChunkBytes::File { account, id, offset: entry.offset, length: entry.length };
            StoredChunk { seq: entry.seq, bytes, truncated: entry.truncated, created_at: entry.created_at }
        }));
        all.truncate(query.limit as usize);
    }
    // The lengths come first: the answer of the database holds no more bytes than that of the server.
    let mut statement = connection.prepare_cached(
        "SELECT seq, length(bytes) FROM log_chunk
           WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3 AND seq > ?4 ORDER BY seq LIMIT ?5",
    )?;
    let stream = query.stream.name();
    let (mut read, mut last) = (0, query.after);
    statement.each(params![id.as_bytes(), attempt, stream, query.after, query.limit], |row| {
        last = row.get(0)?;
        read += row.get::<_, i64>(1)? as usize;
        Ok(read <= query.max_bytes)
    })?;
    let mut statement = connection.prepare_cached(
        "SELECT seq, bytes, truncated, created_at FROM log_chunk
           WHERE directive_id = ?1 AND attempt = ?2 AND stream = ?3 AND seq > ?4 AND seq <= ?5 ORDER BY seq",
    )?;
    all.extend(statement.query_all(params![id.as_bytes(), attempt, stream, query.after, last], |row| {
        let bytes = ChunkBytes::Here(row.get(1)?);
        Ok(StoredChunk { seq: row.get(0)?, bytes, truncated: row.get(2)?, created_at: row.get(3)? })
    })?);
    // A late chunk that filled a gap lies in a row between those of the file.
    all.sort_by_key(|chunk| chunk.seq);
    let (mut found, mut size) = (Vec::new(), 0);
    for chunk in all.into_iter().take(query.limit as usize) {
        size += match &chunk.bytes {
            ChunkBytes::Here(bytes) => bytes.len(),
            ChunkBytes::File { length, .. } => *length as usize,
        };
        if size > query.max_bytes && !found.is_empty() {
            break;
        }
        found.push(chunk);
    }
    Ok(found)
}
