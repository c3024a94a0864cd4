//! From an attempt to an open connection, and new decisions while it is open. The policy itself is
//! `nexus_policy::net`; this module finds the facts for its decisions.
//!
//! ```text
//!  open ─▶ look_ups, proxied, ask_nat64, programs ─▶ state: registry (policy in force, open connections), `facts`, counts
//!     └─▶ guard of an open connection ◀── recheck ◀── follow_denied, own::watch: facts that changed
//! ```

pub(crate) mod ask_nat64;
pub(crate) mod charge;
pub(crate) mod client_gone;
pub(crate) mod context;
pub(crate) mod denials;
pub(crate) mod facts;
pub(crate) mod follow_denied;
pub(crate) mod guard;
pub(crate) mod look_ups;
pub(crate) mod open;
pub(crate) mod own;
pub(crate) mod programs;
pub(crate) mod proxied;
pub(crate) mod recheck;
pub(crate) mod registry;
pub(crate) mod state;
