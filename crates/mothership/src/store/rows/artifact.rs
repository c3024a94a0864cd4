//! Kept files of directives: announced with size and hash, then filled from their beginning.

use super::chunk::{Use, target};
use super::values::{Id, optional};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{
    Account, AnnouncedArtifact, Artifact, ArtifactBounds, Holding, NewArtifact, Reported, Territory,
};
use nexus_api::mothership::Artifact as View;
use nexus_model::ids::DirectiveId;
use uuid::Uuid;

const COLUMNS: &str = "id, account_id, name, size, hash, media_type, received, complete";

fn read(row: &Row<'_>) -> Result<Artifact, StoreError> {
    Ok(Artifact {
        id: row.get("id")?,
        account: row.get("account_id")?,
        name: row.get("name")?,
        size: row.get::<_, i64>("size")? as u64,
        hash: row.get("hash")?,
        media_type: row.get("media_type")?,
        received: row.get::<_, i64>("received")? as u64,
        complete: row.get("complete")?,
    })
}

/// Stores the announcement of a file once. Room for it is counted from here on.
pub fn announce(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    new: &NewArtifact,
    bounds: ArtifactBounds,
    now: i64,
) -> Result<Reported<AnnouncedArtifact>, StoreError> {
    let attempt = match attempt(connection, territory, holding, Use::Changes, now)? {
        Ok(attempt) => attempt,
        Err(refused) => return Ok(refused),
    };
    let id = holding.directive.as_bytes();
    let known = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM artifact WHERE directive_id = ?1 AND attempt = ?2 AND name = ?3"
        ))?
        .query_row(params![id, attempt, new.name], read);
    if let Some(artifact) = optional(known)? {
        if artifact.size != new.size || artifact.hash != new.hash {
            return Ok(Reported::Differs);
        }
        return Ok(Reported::Done(AnnouncedArtifact::Known(artifact)));
    }
    let (count, bytes): (i64, i64) = connection
        .prepare_cached(
            "SELECT count(*), CAST(coalesce(sum(size), 0) AS bigint) FROM artifact WHERE directive_id = ?1 AND attempt = ?2",
        )?
        .query_row(params![id, attempt], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let room = bounds.bytes.saturating_sub(bytes as u64);
    if count as u64 >= bounds.files || new.size > room {
        return Ok(Reported::Done(AnnouncedArtifact::TooMuch));
    }
    let artifact = Artifact {
        id: *Uuid::now_v7().as_bytes(),
        account: *territory.account.as_bytes(),
        name: new.name.clone(),
        size: new.size,
        hash: new.hash.clone(),
        media_type: new.media_type.clone(),
        received: 0,
        complete: new.size == 0,
    };
    connection
        .prepare_cached(
            "INSERT INTO artifact (id, account_id, directive_id, attempt, name, size, hash, media_type, complete, created_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?
        .execute(params![
            artifact.id,
            artifact.account,
            id,
            attempt,
            artifact.name,
            artifact.size as i64,
            artifact.hash,
            artifact.media_type,
            artifact.complete,
            now
        ])?;
    Ok(Reported::Done(AnnouncedArtifact::New(artifact)))
}

/// Returns a file that the territory may go on with.
pub fn upload(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    id: Id,
    now: i64,
) -> Result<Reported<Artifact>, StoreError> {
    let attempt = match attempt(connection, territory, holding, Use::Reads, now)? {
        Ok(attempt) => attempt,
        Err(refused) => return Ok(refused),
    };
    let found = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM artifact WHERE id = ?1 AND directive_id = ?2 AND attempt = ?3"
        ))?
        .query_row(params![id, holding.directive.as_bytes(), attempt], read);
    optional(found)?.map(Reported::Done).ok_or(StoreError::NotFound)
}

/// Returns the attempt that may still bring files.
fn attempt<T>(
    connection: &Connection<'_>,
    territory: Territory,
    holding: Holding,
    purpose: Use,
    now: i64,
) -> Result<Result<u32, Reported<T>>, StoreError> {
    let found = target(connection, territory, holding, purpose, now)?;
    Ok(found.map(|target| target.attempt).map_err(Reported::Refused))
}

/// Notes bytes that are on the disk; `false` when another call was faster.
pub fn received(connection: &Connection<'_>, id: Id, from: u64, to: u64) -> Result<bool, StoreError> {
    let changed = connection
        .prepare_cached("UPDATE artifact SET received = ?3 WHERE id = ?1 AND received = ?2 AND NOT complete")?
        .execute(params![id, from as i64, to as i64])?;
    Ok(changed == 1)
}

/// Ends an upload: complete if `is_good`, otherwise reset to zero bytes. Returns whether this call did so.
pub fn checked(connection: &Connection<'_>, id: Id, is_good: bool) -> Result<bool, StoreError> {
    let statement = if is_good {
        "UPDATE artifact SET complete = TRUE WHERE id = ?1 AND received = size"
    } else {
        "UPDATE artifact SET received = 0 WHERE id = ?1 AND received = size AND NOT complete"
    };
    Ok(connection.prepare_cached(statement)?.execute(params![id])? == 1)
}

/// Lists the kept files of the account's directive.
pub fn list(
    connection: &Connection<'_>,
    account: Account,
    directive: DirectiveId,
    attempt: Option<u32>,
) -> Result<Vec<View>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM artifact WHERE directive_id = ?1 AND account_id = ?2 AND attempt = coalesce(?3,
           (SELECT coalesce(w.attempt, d.attempt) FROM directive d LEFT JOIN work w ON w.directive_id = d.id WHERE d.id = ?1))
           ORDER BY name"
    ))?;
    let rows = statement.query_all(params![directive.as_bytes(), account.id.as_bytes(), attempt], read)?;
    let view = |one: Artifact| View {
        artifact_id: Uuid::from_bytes(one.id).to_string(),
        name: one.name,
        size: one.size,
        blake3: one.hash,
        media_type: one.media_type,
        complete: one.complete,
    };
    Ok(rows.into_iter().map(view).collect())
}

/// Returns one kept file of the account's directive.
pub fn get(
    connection: &Connection<'_>,
    account: Account,
    directive: DirectiveId,
    id: Id,
) -> Result<Artifact, StoreError> {
    let found = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM artifact WHERE id = ?1 AND directive_id = ?2 AND account_id = ?3"
        ))?
        .query_row(params![id, directive.as_bytes(), account.id.as_bytes()], read);
    optional(found)?.ok_or(StoreError::NotFound)
}
