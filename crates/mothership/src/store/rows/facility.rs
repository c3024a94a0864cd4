//! Rows of facilities.

use super::audit;
use super::values::{Id, named, optional};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, Row, params};
use crate::store::types::{Account, NewFacility, Page};
use nexus_api::Timestamp;
use nexus_api::mothership::Facility;
use nexus_model::ids::{FacilityId, TerritoryId};
use nexus_model::spec::FacilityRef;

/// Stores a facility. The territory that holds it must be one of the account.
pub fn create_facility(
    connection: &Connection<'_>,
    account: Account,
    new: &NewFacility,
    now: i64,
) -> Result<FacilityId, StoreError> {
    if let Some(pin) = new.pin {
        let known: bool = connection.query_row(
            "SELECT EXISTS (SELECT 1 FROM territory WHERE id = ?1 AND account_id = ?2 AND state < 3)",
            params![pin.as_bytes(), account.id.as_bytes()],
            |row| row.get(0),
        )?;
        if !known {
            return Err(StoreError::NotFound);
        }
    }
    let id = FacilityId::new();
    connection.execute(
        "INSERT INTO facility (id, account_id, kind, name, repo_url, pin, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            id.as_bytes(),
            account.id.as_bytes(),
            new.kind.name(),
            new.name,
            new.repo_url,
            new.pin.map(|pin| *pin.as_bytes()),
            now
        ],
    )?;
    let detail = serde_json::json!({"kind": new.kind});
    audit::note(connection, account, "facility.create", &format!("facility/{id}"), &detail, now)?;
    Ok(id)
}

const SELECT: &str = "SELECT id, kind, name, repo_url, pin, created_at FROM facility";

type Columns = (Id, String, Option<String>, Option<String>, Option<Id>, i64);

fn columns(row: &Row<'_>) -> Result<Columns, StoreError> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
}

fn view((id, kind, name, repo_url, pin, created_at): Columns) -> Result<Facility, StoreError> {
    Ok(Facility {
        facility_id: FacilityId::from_bytes(id),
        kind: named(&kind)?,
        name,
        repo_url,
        territory_id: pin.map(TerritoryId::from_bytes),
        created_at: Timestamp(created_at),
    })
}

/// Returns a facility of the account.
pub fn facility(connection: &Connection<'_>, account: Account, id: FacilityId) -> Result<Facility, StoreError> {
    let row = connection
        .prepare_cached(&format!("{SELECT} WHERE id = ?1 AND account_id = ?2"))?
        .query_row(params![id.as_bytes(), account.id.as_bytes()], columns);
    view(optional(row)?.ok_or(StoreError::NotFound)?)
}

/// Returns the facility as a specification names it.
pub fn facility_row(connection: &Connection<'_>, account: Account, id: FacilityId) -> Result<FacilityRef, StoreError> {
    let found = facility(connection, account, id)?;
    Ok(FacilityRef { id, mount: "/workspace".to_owned(), repo_url: found.repo_url })
}

/// Returns facilities of the account, the latest first.
pub fn facilities(connection: &Connection<'_>, account: Account, page: Page) -> Result<Vec<Facility>, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("{SELECT} WHERE account_id = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"))?;
    let rows = statement.query_all(params![account.id.as_bytes(), page.below(), page.limit], columns)?;
    rows.into_iter().map(view).collect()
}
