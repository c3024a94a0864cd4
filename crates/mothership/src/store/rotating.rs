//! Changes the authorities of a fleet from another process than its servers.

use super::error::StoreError;
use super::postgres::client::Client;
use super::postgres::{Database, prepare};
use super::sql::Connection;
use super::{rows, sqlite};
use crate::identity::Texts;
use std::cell::RefCell;
use std::path::Path;

/// Replaces the texts of the authorities by what `change` makes of them.
pub fn change_authorities(
    directory: &Path,
    database: Option<&Database>,
    now: i64,
    change: impl Fn(Texts) -> Result<Texts, StoreError>,
) -> Result<(), StoreError> {
    let changed = |connection: &Connection<'_>| {
        let before = rows::authorities(connection)?;
        let after = change(before.clone())?;
        if rows::set_authorities(connection, &before, &after)? {
            return Ok(());
        }
        Err(StoreError::Settings { why: "another process changed the authorities at the same time".to_owned() })
    };
    let Some(database) = database else {
        let connection = sqlite::open_beside(directory, now)?;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        // Without a commit nothing has changed.
        changed(&Connection::sqlite(&connection))?;
        return Ok(connection.execute_batch("COMMIT")?);
    };
    prepare(database, now)?;
    let mut session = Client::open(database)?;
    session.begin("BEGIN");
    let session = RefCell::new(session);
    changed(&Connection::postgres(&session))?;
    if session.into_inner().commit()? {
        return Ok(());
    }
    Err(StoreError::Database { why: "the server has undone the rotation".to_owned() })
}
