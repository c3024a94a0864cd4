//! The questions and changes of the store, each written once for SQLite and PostgreSQL.
//!
//! ```text
//!  a change locks what it relies on, in this order: territory ─▶ presence ─▶ facility ─▶ directive ─▶ approval
//!  (PostgreSQL, read committed; in SQLite the one writer stands for all locks)
//! ```
//! A claim takes directives that no other transaction has locked, and waits for none.

mod apply;
pub mod approval;
pub mod artifact;
pub mod audit;
mod chunk;
mod claim;
pub mod compact;
pub mod connection;
mod create;
mod enroll;
mod facility;
mod held;
mod keys;
pub mod policy;
mod reap;
mod report;
pub mod retain;
pub mod session;
mod territory;
mod values;
mod view;
mod withdrawal;
mod work;

pub use chunk::{chunks, events, put_chunk, put_events};
#[cfg(test)]
pub use claim::FIRST_READY;
pub use claim::{claim, return_claims};
pub use create::create;
pub use enroll::{
    add_certificate, authorities, certificate, create_enroll_token, end_replaced, enroll, set_authorities,
};
pub use facility::{create_facility, facilities, facility, facility_row};
pub use keys::{api_keys, create_api_key, delete_api_key, first_account, key_by_hash};
pub use reap::{due, reap, shift_leases};
pub use report::{cancel, directive_beat, finished, started};
pub use territory::{presence, set_state, territories, territory_account};
pub use view::{diff, directive, directive_lines, directives, live_directives, receipt, snapshot};
