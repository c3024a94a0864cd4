//! Values that go into statements, and values that come out of rows.

use super::error::StoreError;
use rusqlite::types::{ToSqlOutput, ValueRef};

/// Result of a statement.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A value that goes into a statement. An absent value has a type too: PostgreSQL asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Bool(Option<bool>),
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
}

/// A value that comes out of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A type that a column can be read as.
pub trait FromSql: Sized {
    fn read(cell: Cell<'_>) -> Result<Self>;
}

fn unexpected<T>(cell: Cell<'_>) -> Result<T> {
    let kind = match cell {
        Cell::Null => "nothing",
        Cell::Int(_) => "a number",
        Cell::Text(_) => "text",
        Cell::Bytes(_) => "bytes",
    };
    Err(StoreError::corrupt(format!("{kind} in a column of another type")))
}

impl FromSql for i64 {
    fn read(cell: Cell<'_>) -> Result<Self> {
        if let Cell::Int(number) = cell { Ok(number) } else { unexpected(cell) }
    }
}

impl FromSql for u32 {
    fn read(cell: Cell<'_>) -> Result<Self> {
        Self::try_from(i64::read(cell)?).map_err(|_| StoreError::corrupt("a number that is out of its range"))
    }
}

impl FromSql for bool {
    fn read(cell: Cell<'_>) -> Result<Self> {
        Ok(i64::read(cell)? != 0)
    }
}

impl FromSql for String {
    fn read(cell: Cell<'_>) -> Result<Self> {
        if let Cell::Text(text) = cell { Ok(text.to_owned()) } else { unexpected(cell) }
    }
}

impl FromSql for Vec<u8> {
    fn read(cell: Cell<'_>) -> Result<Self> {
        if let Cell::Bytes(bytes) = cell { Ok(bytes.to_vec()) } else { unexpected(cell) }
    }
}

impl<const N: usize> FromSql for [u8; N] {
    fn read(cell: Cell<'_>) -> Result<Self> {
        let Cell::Bytes(bytes) = cell else { return unexpected(cell) };
        bytes.try_into().map_err(|_| StoreError::corrupt("an id or a hash of another length"))
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn read(cell: Cell<'_>) -> Result<Self> {
        if cell == Cell::Null { Ok(None) } else { T::read(cell).map(Some) }
    }
}

/// A type that a statement takes.
pub trait ToSql {
    /// Value of `None`.
    const NONE: Value<'static>;
    fn value(&self) -> Value<'_>;
}

macro_rules! to_sql {
    ($kind:ty, $variant:ident, $this:ident => $value:expr) => {
        impl ToSql for $kind {
            const NONE: Value<'static> = Value::$variant(None);
            fn value(&self) -> Value<'_> {
                let $this = self;
                Value::$variant(Some($value))
            }
        }
    };
}

to_sql!(bool, Bool, this => *this);
to_sql!(i64, Int, this => *this);
to_sql!(u32, Int, this => i64::from(*this));
to_sql!(str, Text, this => this);
to_sql!(String, Text, this => this);
to_sql!([u8], Bytes, this => this);
to_sql!(Vec<u8>, Bytes, this => this);

impl<const N: usize> ToSql for [u8; N] {
    const NONE: Value<'static> = Value::Bytes(None);
    fn value(&self) -> Value<'_> {
        Value::Bytes(Some(self))
    }
}

impl<T: ToSql + ?Sized> ToSql for &T {
    const NONE: Value<'static> = T::NONE;
    fn value(&self) -> Value<'_> {
        T::value(self)
    }
}

impl<T: ToSql> ToSql for Option<T> {
    const NONE: Value<'static> = T::NONE;
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(T::NONE, ToSql::value)
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self {
            Self::Bool(value) => value.map(|value| ValueRef::Integer(i64::from(value))),
            Self::Int(value) => value.map(ValueRef::Integer),
            Self::Text(value) => value.map(|text| ValueRef::Text(text.as_bytes())),
            Self::Bytes(value) => value.map(ValueRef::Blob),
        };
        Ok(ToSqlOutput::Borrowed(value.unwrap_or(ValueRef::Null)))
    }
}

/// The values of a statement, in order.
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::store::value::ToSql::value(&$value)),*] };
}
pub(crate) use params;
