//! Brings the database of a fleet from SQLite into an empty PostgreSQL database.
//!
//! ```text
//!  SQLite, for this process alone ─▶ every table, row by row ─▶ one transaction of PostgreSQL ─▶ numbers of rows compared ─▶ COMMIT
//!                                                                       then: the SQLite database is marked, and no server opens it again
//! ```

use super::error::StoreError;
use super::postgres::client::Client;
use super::postgres::{Database, prepare};
use super::sql::{Connection, Index, params};
use super::sqlite;
use super::value::{Cell, Result, Value};
use std::cell::RefCell;
use std::path::Path;

/// A column of a table, and the kind of its values.
struct Column {
    name: String,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Int,
    Text,
    Bytes,
}

/// Moves the fleet of a data directory, and returns the number of its rows. Kept files stay where they are. Nothing is changed when it
/// fails; the one exception says so.
pub fn move_to_postgres(directory: &Path, database: &Database, now: i64) -> Result<u64> {
    let from = sqlite::open_alone(directory, now)?;
    prepare(database, now)?;
    let mut session = Client::open(database)?;
    session.begin("BEGIN");
    let session = RefCell::new(session);
    let rows = copy(&Connection::sqlite(&from), &Connection::postgres(&session))?;
    if !session.into_inner().commit()? {
        return Err(StoreError::Database { why: "the server has undone the move".to_owned() });
    }
    sqlite::mark_moved(&from).map_err(|error| StoreError::Database {
        why: format!(
            "the fleet was moved, but the database before could not be marked ({error}): never start it again"
        ),
    })?;
    Ok(rows)
}

fn copy(from: &Connection<'_>, to: &Connection<'_>) -> Result<u64> {
    // Two moves at once: the second one waits here and then finds accounts.
    to.execute("LOCK TABLE store IN ACCESS EXCLUSIVE MODE", params![])?;
    if to.query_row("SELECT EXISTS (SELECT 1 FROM account)", params![], |row| row.get(0))? {
        return Err(StoreError::Settings { why: "it holds a fleet already".to_owned() });
    }
    let tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('schema_version', 'store') AND name NOT LIKE 'sqlite_%'";
    let tables: Vec<String> = from.prepare_cached(tables)?.query_all(params![], |row| row.get(0))?;
    let mut rows = 0;
    for table in &tables {
        rows += copy_table(from, to, table)?;
    }
    // Numbers that the database gives out go on after those that it gave out.
    for table in ["trail", "class"] {
        let set = format!("SELECT setval(pg_get_serial_sequence('{table}', 'id'), coalesce(max(id), 1)) FROM {table}");
        to.query_row(&set, params![], |_| Ok(()))?;
    }
    let secrets =
        from.query_row("SELECT epoch, token_key, ca_cert, ca_key FROM store WHERE id = 1", params![], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; 32]>(1)?, row.get::<_, String>(2)?, row.get::<_, String>(3)?))
        })?;
    let (epoch, token_key, cert, key) = secrets;
    // A server that still uses a copy of the database before would give out the same fences.
    to.execute(
        "UPDATE store SET epoch = greatest(epoch, ?1) + 1, token_key = ?2, ca_cert = ?3, ca_key = ?4 WHERE id = 1",
        params![epoch, token_key, cert, key],
    )?;
    Ok(rows)
}

fn copy_table(from: &Connection<'_>, to: &Connection<'_>, table: &str) -> Result<u64> {
    let columns = columns(to, table)?;
    let names: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    let (names, places) = (names.join(", "), (1..=columns.len()).map(|place| format!("?{place}")).collect::<Vec<_>>());
    let insert = format!("INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE VALUES ({})", places.join(", "));
    let mut insert = to.prepare_cached(&insert)?;
    let mut count = 0u64;
    from.prepare_cached(&format!("SELECT {names} FROM {table}"))?.each(params![], |row| {
        let values = columns.iter().enumerate().map(|(place, column)| value(place.cell(row)?, column));
        insert.execute(&values.collect::<Result<Vec<_>>>()?)?;
        count += 1;
        Ok(true)
    })?;
    let there: i64 = to.query_row(&format!("SELECT count(*) FROM {table}"), params![], |row| row.get(0))?;
    if u64::try_from(there) == Ok(count) {
        return Ok(count);
    }
    Err(StoreError::Database { why: format!("{table} has {count} rows, and {there} arrived") })
}

/// Returns the columns that a table has in PostgreSQL.
fn columns(to: &Connection<'_>, table: &str) -> Result<Vec<Column>> {
    let question = "SELECT a.attname::text, t.typname::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
    let columns = to.prepare_cached(question)?.query_all(params![table], |row| {
        let kind = match row.get::<_, String>(1)?.as_str() {
            "bool" => Kind::Bool,
            "int8" => Kind::Int,
            "text" => Kind::Text,
            "bytea" => Kind::Bytes,
            other => return Err(StoreError::corrupt(format!("a column of type {other} in {table}"))),
        };
        Ok(Column { name: row.get(0)?, kind })
    })?;
    if columns.is_empty() {
        Err(StoreError::corrupt(format!("the table {table}, which PostgreSQL does not have")))
    } else {
        Ok(columns)
    }
}

fn value<'a>(cell: Cell<'a>, column: &Column) -> Result<Value<'a>> {
    match (column.kind, cell) {
        (Kind::Bool, Cell::Null) => Ok(Value::Bool(None)),
        (Kind::Bool, Cell::Int(number)) => Ok(Value::Bool(Some(number != 0))),
        (Kind::Int, Cell::Null) => Ok(Value::Int(None)),
        (Kind::Int, Cell::Int(number)) => Ok(Value::Int(Some(number))),
        (Kind::Text, Cell::Null) => Ok(Value::Text(None)),
        (Kind::Text, Cell::Text(text)) => Ok(Value::Text(Some(text))),
        (Kind::Bytes, Cell::Null) => Ok(Value::Bytes(None)),
        (Kind::Bytes, Cell::Bytes(bytes)) => Ok(Value::Bytes(Some(bytes))),
        _ => Err(StoreError::corrupt(format!("the column {} holds another kind of value", column.name))),
    }
}
