//! Opening the database: the schema, the secrets, the epoch.

use super::client::Client;
use super::database::Database;
use super::hints::{Hints, Publisher, listen};
use super::pool::{Pool, Postgres};
use crate::identity::{Authority, random};
use crate::store::error::StoreError;
use crate::store::sql::{Connection, params};
use crate::store::types::Secrets;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use uuid::Uuid;

/// Version of the schema that this program writes.
const VERSION: i64 = 5;
const SCHEMA: &str = include_str!("schema.sql");
/// Steps from each version to the next. A program of the version before goes on to use the database.
const STEPS: &[&str] =
    &[include_str!("step_2.sql"), include_str!("step_3.sql"), include_str!("step_4.sql"), include_str!("step_5.sql")];
/// Key of the advisory lock under which one server at a time upgrades the schema.
const MIGRATION_LOCK: i64 = 0x006e_6578_7573_0001;
/// Query for the timeline of the database server, which a promotion of a standby and a restoration to a point in time raise.
const TIMELINE: &str = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

impl Postgres {
    /// Connects, brings the schema to this version, and begins to listen to the other servers.
    pub async fn open(database: Database, now: i64) -> Result<(Self, Secrets, Hints), StoreError> {
        let opened = tokio::task::spawn_blocking(move || {
            prepare(&database, now)?;
            let me = Uuid::now_v7();
            let (publisher, hints) = (Publisher::start(&database, me)?, listen(&database, me)?);
            let store = Self::new(database, publisher);
            let secrets = store.0.secrets()?;
            Ok((store, secrets, hints))
        });
        opened.await.map_err(|_| StoreError::Closed)?
    }

    /// Returns the id of the directory of kept files: the given one, when the database has none yet.
    pub async fn blobs_id(&self, id: [u8; 16]) -> Result<[u8; 16], StoreError> {
        self.write(move |connection| {
            connection.query_row(
                "UPDATE store SET blobs_id = coalesce(blobs_id, ?1) WHERE id = 1 RETURNING blobs_id",
                params![id],
                |row| row.get(0),
            )
        })
        .await
    }
}

impl Pool {
    /// Opens a session, and raises the epoch when the server's history has parted from the one that the fences came from.
    pub(super) fn connect(&self) -> Result<Client, StoreError> {
        let session = RefCell::new(Client::open(&self.database)?);
        let connection = Connection::postgres(&session);
        let timeline: String = connection.query_row(TIMELINE, params![], |row| row.get(0))?;
        connection.execute(
            "UPDATE store SET epoch = epoch + 1, timeline = ?1 WHERE id = 1 AND timeline <> ?1",
            params![timeline],
        )?;
        let epoch: i64 = connection.query_row("SELECT epoch FROM store WHERE id = 1", params![], |row| row.get(0))?;
        self.epoch.fetch_max(epoch as u64, Ordering::SeqCst);
        Ok(session.into_inner())
    }

    fn secrets(self: &Arc<Self>) -> Result<Secrets, StoreError> {
        let session = RefCell::new(self.connect()?);
        let question = "SELECT epoch, token_key, ca_cert, ca_key FROM store WHERE id = 1";
        Connection::postgres(&session).query_row(question, params![], |row| {
            let epoch = row.get::<_, i64>(0)? as u64;
            Ok(Secrets { epoch, token_key: row.get(1)?, ca_cert: row.get(2)?, ca_key: row.get(3)? })
        })
    }
}

/// Brings the schema to this version.
pub fn prepare(database: &Database, now: i64) -> Result<(), StoreError> {
    let mut session = Client::open(database)?;
    session.begin("BEGIN");
    let session = RefCell::new(session);
    let made = migrate(&session, now);
    let mut session = session.into_inner();
    match made {
        Ok(()) if session.commit()? => Ok(()),
        Ok(()) => Err(StoreError::Database { why: "the server has undone the upgrade".to_owned() }),
        // The session ends here, and with it the transaction.
        Err(error) => Err(error),
    }
}

fn migrate(session: &RefCell<Client>, now: i64) -> Result<(), StoreError> {
    let connection = Connection::postgres(session);
    connection.query_row("SELECT TRUE FROM pg_advisory_xact_lock(?1)", params![MIGRATION_LOCK], |_| Ok(()))?;
    let exists: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_version')",
        params![],
        |row| row.get(0),
    )?;
    if exists {
        let (version, min_reader): (i64, i64) =
            connection.query_row("SELECT version, min_reader FROM schema_version", params![], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        if min_reader > VERSION {
            return Err(StoreError::Newer { found: min_reader, known: VERSION });
        }
        return upgrade(session, version);
    }
    session.borrow_mut().batch(SCHEMA)?;
    upgrade(session, 1)?;
    let token_key: [u8; 32] = random()?;
    let authority = Authority::create(now).map_err(|error| StoreError::Secret { why: error.to_string() })?;
    let (cert, key) = authority.export();
    let timeline: String = connection.query_row(TIMELINE, params![], |row| row.get(0))?;
    connection.execute(
        "INSERT INTO store (id, epoch, token_key, ca_cert, ca_key, timeline) VALUES (1, 0, ?1, ?2, ?3, ?4)",
        params![token_key, cert, key, timeline],
    )?;
    Ok(())
}

/// Brings a database of an earlier version to this one. One of a later version that this program may use stays as it is.
fn upgrade(session: &RefCell<Client>, version: i64) -> Result<(), StoreError> {
    let done = usize::try_from(version - 1).map_err(|_| StoreError::corrupt("schema_version"))?;
    for step in STEPS.iter().skip(done) {
        session.borrow_mut().batch(step)?;
    }
    let raise = "UPDATE schema_version SET version = greatest(version, ?1)";
    Connection::postgres(session).execute(raise, params![VERSION])?;
    Ok(())
}
