//! One interface to statements, for SQLite and PostgreSQL, so that each question to the store is written once.
//!
//! Statements name their values `?1`, `?2`, … and use what both databases understand. Where they differ, [`Connection`] gives the
//! words: a row that is to be changed is locked in PostgreSQL, and needs no lock in SQLite, which has one writer.

use super::error::StoreError;
use super::postgres::client::{Cells, Client};
pub(crate) use super::value::params;
use super::value::{Cell, FromSql, Result, Value};
use rusqlite::CachedStatement;
use rusqlite::types::ValueRef;
use std::cell::RefCell;

/// A transaction of one of the databases.
pub struct Connection<'a>(Database<'a>);

enum Database<'a> {
    Sqlite(&'a rusqlite::Connection),
    Postgres(&'a RefCell<Client>),
}

/// A statement that was prepared, now or earlier.
pub enum Statement<'c> {
    Sqlite(CachedStatement<'c>),
    Postgres(&'c RefCell<Client>, String),
}

/// A row of an answer.
pub enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r Cells),
}

impl<'a> Connection<'a> {
    pub fn sqlite(connection: &'a rusqlite::Connection) -> Self {
        Self(Database::Sqlite(connection))
    }

    pub fn postgres(client: &'a RefCell<Client>) -> Self {
        Self(Database::Postgres(client))
    }

    /// Prepares a statement once for each connection to the database.
    pub fn prepare_cached(&self, text: &str) -> Result<Statement<'_>> {
        match &self.0 {
            Database::Sqlite(connection) => {
                #[cfg(test)]
                seen::note(text);
                Ok(Statement::Sqlite(connection.prepare_cached(text)?))
            }
            Database::Postgres(client) => Ok(Statement::Postgres(client, text.to_owned())),
        }
    }

    /// Runs a statement and returns the number of rows that it changed.
    pub fn execute(&self, text: &str, values: &[Value<'_>]) -> Result<usize> {
        self.prepare_cached(text)?.execute(values)
    }

    /// Reads the first row of an answer.
    pub fn query_row<T>(&self, text: &str, values: &[Value<'_>], read: impl FnMut(&Row<'_>) -> Result<T>) -> Result<T> {
        self.prepare_cached(text)?.query_row(values, read)
    }

    /// Ends a `SELECT` of a row that this transaction changes, or whose state it relies on. Others wait for its end.
    pub fn locked(&self) -> &'static str {
        match self.0 {
            Database::Sqlite(_) => "",
            Database::Postgres(_) => " FOR NO KEY UPDATE",
        }
    }

    /// Ends a `SELECT` of the first row that no other transaction has locked.
    pub fn first_free(&self) -> &'static str {
        match self.0 {
            Database::Sqlite(_) => "",
            Database::Postgres(_) => " FOR NO KEY UPDATE SKIP LOCKED",
        }
    }
}

impl Statement<'_> {
    /// Runs the statement and returns the number of rows that it changed.
    pub fn execute(&mut self, values: &[Value<'_>]) -> Result<usize> {
        match self {
            Self::Sqlite(statement) => Ok(statement.execute(rusqlite::params_from_iter(values))?),
            Self::Postgres(client, text) => Ok(client.borrow_mut().run(text, values)?.changed),
        }
    }

    /// Hands each row to `take`, until that returns `false`.
    pub fn each(&mut self, values: &[Value<'_>], mut take: impl FnMut(&Row<'_>) -> Result<bool>) -> Result<()> {
        match self {
            Self::Sqlite(statement) => {
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                while let Some(row) = rows.next()? {
                    if !take(&Row::Sqlite(row))? {
                        return Ok(());
                    }
                }
            }
            Self::Postgres(client, text) => {
                let answer = client.borrow_mut().run(text, values)?;
                for cells in answer.rows() {
                    if !take(&Row::Postgres(&cells))? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads the first row of the answer; [`StoreError::NotFound`] when there is none.
    pub fn query_row<T>(&mut self, values: &[Value<'_>], mut read: impl FnMut(&Row<'_>) -> Result<T>) -> Result<T> {
        let mut found = None;
        self.each(values, |row| {
            found = Some(read(row)?);
            Ok(false)
        })?;
        found.ok_or(StoreError::NotFound)
    }

    /// Reads all rows of the answer.
    pub fn query_all<T>(
        &mut self,
        values: &[Value<'_>],
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.each(values, |row| {
            found.push(read(row)?);
            Ok(true)
        })?;
        Ok(found)
    }
}

/// Names a column by its place or its name.
pub trait Index {
    fn cell<'r>(&self, row: &'r Row<'_>) -> Result<Cell<'r>>;
}

impl Index for usize {
    fn cell<'r>(&self, row: &'r Row<'_>) -> Result<Cell<'r>> {
        match row {
            Row::Sqlite(row) => cell(row.get_ref(*self)?),
            Row::Postgres(cells) => cells.at(*self),
        }
    }
}

impl Index for &str {
    fn cell<'r>(&self, row: &'r Row<'_>) -> Result<Cell<'r>> {
        match row {
            Row::Sqlite(row) => cell(row.get_ref(*self)?),
            Row::Postgres(cells) => cells.named(self),
        }
    }
}

fn cell(value: ValueRef<'_>) -> Result<Cell<'_>> {
    match value {
        ValueRef::Null => Ok(Cell::Null),
        ValueRef::Integer(number) => Ok(Cell::Int(number)),
        ValueRef::Text(text) => std::str::from_utf8(text).map(Cell::Text).map_err(|_| StoreError::corrupt("text")),
        ValueRef::Blob(bytes) => Ok(Cell::Bytes(bytes)),
        ValueRef::Real(_) => Err(StoreError::corrupt("a number with a fraction")),
    }
}

impl Row<'_> {
    /// Returns the value of a column.
    #[expect(clippy::needless_pass_by_value, reason = "a number or a name of a column")]
    pub fn get<I: Index, T: FromSql>(&self, index: I) -> Result<T> {
        T::read(index.cell(self)?)
    }
}

/// The statements that this process has prepared for SQLite, which does not list them itself.
#[cfg(test)]
pub mod seen {
    use std::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};

    static TEXTS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

    pub fn note(text: &str) {
        TEXTS.lock().unwrap_or_else(PoisonError::into_inner).insert(text.to_owned());
    }

    pub fn all() -> Vec<String> {
        TEXTS.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
