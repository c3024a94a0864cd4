//! The store in SQLite.
//!
//! ```text
//!  write ─▶ one writer thread: BEGIN IMMEDIATE, a savepoint for each request, COMMIT after 32 or when no request waits
//!  read  ─▶ read-only connections, a short transaction each
//! ```

mod open;
#[cfg(test)]
mod plan_tests;
mod writer;

pub use open::{Sqlite, mark_moved, open_alone, open_beside};
