//! The store in PostgreSQL, which several servers may share.
//!
//! ```text
//!  operation ─▶ pool: a session, BEGIN ─▶ statements ─▶ COMMIT; again after a deadlock, a lost session, a plan that is out of date
//!  after a commit ─▶ hints: NOTIFY, gathered for some milliseconds ─▶ the other servers wake polls and event streams
//!  round of the reaper ─▶ lead: one session holds an advisory lock; its server alone reaps, compacts and removes
//! ```
//! The protocol is spoken here: messages ([`wire`]), authentication ([`scram`]), the connection ([`client`]). Why no crate
//! does it stands in decision 0027.

pub mod client;
mod database;
mod hints;
mod lead;
mod open;
mod pool;
mod scram;
mod stream;
mod wire;

#[cfg(test)]
mod plan_tests;

pub use database::Database;
pub use hints::{Hint, Hints};
pub use open::prepare;
pub use pool::Postgres;
