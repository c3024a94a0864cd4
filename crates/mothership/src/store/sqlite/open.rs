//! Opening the database: the directory, the schema, the secrets of the store.

use super::writer::Writer;
use crate::identity::{Authority, random};
use crate::store::error::StoreError;
use crate::store::sql;
use crate::store::types::Secrets;
use rusqlite::{Connection, OpenFlags, params};
use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Version of the schema that this program writes.
const VERSION: i64 = 7;
const SCHEMA: &str = include_str!("schema.sql");
/// Steps from each version to the next. A program of the version before goes on to read the database.
const STEPS: &[&str] = &[
    include_str!("step_2.sql"),
    include_str!("step_3.sql"),
    include_str!("step_4.sql"),
    include_str!("step_5.sql"),
    include_str!("step_6.sql"),
    include_str!("step_7.sql"),
];
/// Stands for the version that a reader needs in a database that was moved: no program reads it.
const MOVED: i64 = i64::MAX;
/// Number of read connections that are kept.
const MAX_READERS: usize = 8;

/// A store that was opened.
pub struct Opened {
    pub store: Sqlite,
    pub secrets: Secrets,
}

/// The store in one SQLite database.
#[derive(Clone)]
pub struct Sqlite {
    writer: Writer,
    readers: Arc<Readers>,
    /// Upper part of fences.
    pub epoch: u64,
}

struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Sqlite {
    /// Opens the database in a directory, and makes both when they do not exist.
    pub fn open(directory: &Path, now: i64) -> Result<Opened, StoreError> {
        let fault = |error: std::io::Error| StoreError::Directory {
            path: directory.display().to_string(),
            why: error.to_string(),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(fault)?;
        let path = directory.join("mothership.db");
        // The file holds keys: it is made with the mode 0600 before SQLite opens it, and its journals take the same mode.
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(fault)?;
        let connection = Connection::open(&path)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 5000; PRAGMA foreign_keys = ON;
             PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 2000;",
        )?;
        connection.set_prepared_statement_cache_capacity(128);
        migrate(&connection, now)?;
        let secrets =
            connection.query_row("SELECT epoch, token_key, ca_cert, ca_key FROM store WHERE id = 1", [], |row| {
                Ok(Secrets {
                    epoch: row.get::<_, i64>(0)? as u64,
                    token_key: row.get(1)?,
                    ca_cert: row.get(2)?,
                    ca_key: row.get(3)?,
                })
            })?;
        let store = Self {
            writer: Writer::start(connection)?,
            readers: Arc::new(Readers { path, idle: Mutex::new(Vec::new()) }),
            epoch: secrets.epoch,
        };
        Ok(Opened { store, secrets })
    }

    /// Runs `work` in a transaction of the writer thread.
    pub async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&sql::Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(move |connection| work(&sql::Connection::sqlite(connection))).await
    }

    /// Runs `work` on one snapshot of the database.
    pub async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&sql::Connection<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let readers = Arc::clone(&self.readers);
        tokio::task::spawn_blocking(move || readers.run(|connection| work(&sql::Connection::sqlite(connection))))
            .await
            .map_err(|_| StoreError::Closed)?
    }
}

impl Readers {
    fn run<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.prepare_cached("BEGIN")?.execute([])?;
        let result = work(&connection);
        connection.prepare_cached("COMMIT")?.execute([])?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_READERS {
            idle.push(connection);
        }
        result
    }

    fn connect(&self) -> Result<Connection, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.execute_batch("PRAGMA busy_timeout = 5000; PRAGMA query_only = ON;")?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }
}

/// Opens the database of a directory for this connection alone: a server that runs keeps others out, and is kept out.
pub fn open_alone(directory: &Path, now: i64) -> Result<Connection, StoreError> {
    let path = directory.join("mothership.db");
    let fault = |why: String| StoreError::Directory { path: path.display().to_string(), why };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags).map_err(|error| fault(error.to_string()))?;
    let alone =
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL; BEGIN IMMEDIATE; COMMIT");
    alone.map_err(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseBusy) => fault("a control plane uses it".to_owned()),
        _ => error.into(),
    })?;
    migrate(&connection, now)?;
    Ok(connection)
}

/// Opens the database of a directory for a change beside a server that may use it.
pub fn open_beside(directory: &Path, now: i64) -> Result<Connection, StoreError> {
    let path = directory.join("mothership.db");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags)
        .map_err(|error| StoreError::Directory { path: path.display().to_string(), why: error.to_string() })?;
    connection.execute_batch("PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL;")?;
    migrate(&connection, now)?;
    Ok(connection)
}

/// Marks a database that was moved: no server opens it any more.
pub fn mark_moved(connection: &Connection) -> Result<(), StoreError> {
    connection.execute("UPDATE schema_version SET min_reader = ?1", params![MOVED])?;
    Ok(())
}

fn migrate(connection: &Connection, now: i64) -> Result<(), StoreError> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let made = prepare(connection, now);
    connection.execute_batch(if made.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    made
}

fn prepare(connection: &Connection, now: i64) -> Result<(), StoreError> {
    let exists: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version')",
        [],
        |row| row.get(0),
    )?;
    if exists {
        let (version, min_reader): (i64, i64) =
            connection.query_row("SELECT version, min_reader FROM schema_version", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        if min_reader == MOVED {
            return Err(StoreError::Moved);
        }
        if min_reader > VERSION {
            return Err(StoreError::Newer { found: min_reader, known: VERSION });
        }
        return upgrade(connection, version);
    }
    connection.execute_batch(SCHEMA)?;
    upgrade(connection, 1)?;
    let token_key: [u8; 32] = random()?;
    let authority = Authority::create(now).map_err(|error| StoreError::Secret { why: error.to_string() })?;
    let (cert, key) = authority.export();
    connection.execute(
        "INSERT INTO store (id, epoch, token_key, ca_cert, ca_key) VALUES (1, 0, ?1, ?2, ?3)",
        params![token_key.as_slice(), cert, key],
    )?;
    Ok(())
}

/// Brings a database of an earlier version to this one. One of a later version that this program may use stays as it is.
fn upgrade(connection: &Connection, version: i64) -> Result<(), StoreError> {
    let done = usize::try_from(version - 1).map_err(|_| StoreError::corrupt("schema_version"))?;
    for step in STEPS.iter().skip(done) {
        connection.execute_batch(step)?;
    }
    connection.execute("UPDATE schema_version SET version = max(version, ?1)", params![VERSION])?;
    Ok(())
}
