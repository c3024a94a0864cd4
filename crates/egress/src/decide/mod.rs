//! From an attempt to an open connection, and new decisions while it is open. The policy itself is
//! `nexus_policy::net`; this room finds the facts that it decides by.

pub(crate) mod behind;
pub(crate) mod denials;
pub(crate) mod gone;
pub(crate) mod grounds;
pub(crate) mod look_up_pool;
pub(crate) mod look_ups;
pub(crate) mod nat64;
pub(crate) mod own;
pub(crate) mod pace;
pub(crate) mod programs;
pub(crate) mod proxied;
pub(crate) mod registry;
pub(crate) mod shared;
pub(crate) mod synthetic;
pub(crate) mod ticket;
