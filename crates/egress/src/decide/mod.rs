//! From an attempt to an open connection, and new decisions while it is open. The policy itself is
//! `nexus_policy::net`; this module finds the facts for its decisions.
//!
//! ```text
//!  open ─▶ look_ups, proxied, ask_nat64, programs ─▶ state: registry (policy in force, open connections), facts, counts
//!     └─▶ guard of an open connection ◀── recheck ◀── follow, own::watch: facts that changed
//! ```

pub(crate) mod ask_nat64;
pub(crate) mod behind;
pub(crate) mod charge;
pub(crate) mod context;
pub(crate) mod denials;
pub(crate) mod follow;
pub(crate) mod gone;
pub(crate) mod guard;
pub(crate) mod look_up_pool;
pub(crate) mod look_ups;
pub(crate) mod nat64;
pub(crate) mod open;
pub(crate) mod own;
pub(crate) mod pace;
pub(crate) mod programs;
pub(crate) mod proxied;
pub(crate) mod recheck;
pub(crate) mod registry;
pub(crate) mod silence;
pub(crate) mod state;
pub(crate) mod synthetic;
