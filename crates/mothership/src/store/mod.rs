//! The store: one narrow set of operations, each with an [`types::Account`] or a [`types::Territory`] as its caller.
//!
//! ```text
//!  operations ─▶ rows (statements, written once) ─▶ sql (values and rows) ─▶ sqlite: one file, one writer
//!                                                                         └▶ postgres: several servers, rows locked
//! ```
//! An operation runs in one transaction and ends as it decides, even when its caller goes away. What an event does to a directive
//! is decided by `nexus_model::directive::step`, never by a statement.

mod approvals;
mod artifacts;
mod audits;
pub mod error;
pub mod jump;
#[cfg(test)]
mod life_tests;
mod moving;
mod operations;
mod policies;
pub mod postgres;
mod queries;
mod rotating;
mod rows;
mod sessions;
mod sql;
mod sqlite;
pub mod types;
mod value;

pub use error::StoreError;
pub use moving::move_to_postgres;
pub use operations::Store;
pub use rotating::change_authorities;
