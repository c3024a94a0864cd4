//! The store in SQLite.
//!
//! ```text
//!  write ─▶ one writer thread: BEGIN IMMEDIATE, a savepoint for each request, COMMIT after 32 or when no request waits
//!  read  ─▶ read-only connections, a short transaction each
//! ```

mod apply;
pub(super) mod artifact;
mod chunk;
mod claim;
pub(super) mod compact;
mod create;
mod enroll;
mod facility;
mod keys;
mod open;
mod reap;
mod report;
pub(super) mod retain;
mod territory;
mod values;
mod view;
mod work;
mod writer;

pub use open::{Secrets, Sqlite};

pub(super) use chunk::{chunks, events, put_chunk, put_events};
pub(super) use claim::{claim, return_claims};
pub(super) use create::create;
pub(super) use enroll::{add_certificate, create_enroll_token, enroll, territory_by_certificate};
pub(super) use facility::{create_facility, facilities, facility, facility_row};
pub(super) use keys::{api_keys, create_api_key, delete_api_key, first_account, key_by_hash};
pub(super) use reap::{reap, shift_leases};
pub(super) use report::{cancel, directive_beat, finished, started};
pub(super) use territory::{presence, set_state, territories, territory_account};
pub(super) use view::{diff, directive, directives, receipt, snapshot};
