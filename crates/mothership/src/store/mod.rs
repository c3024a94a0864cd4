//! The store: one narrow set of operations, each with an [`types::Account`] or a [`types::Territory`] as its caller.
//!
//! [`Store`] is an enum of databases: SQLite now, and PostgreSQL behind the same operations and the same tests. An operation
//! runs in one transaction and ends as it decides, even when its caller goes away. What an event does to a directive is
//! decided by `nexus_model::directive::step`, never by a statement.

mod artifacts;
pub mod error;
mod operations;
mod queries;
mod sqlite;
pub mod types;

pub use error::StoreError;
pub use operations::Store;
