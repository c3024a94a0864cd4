//! The facts that all connections of one sandbox share. `state` holds them; they know neither connections nor the policy in force.
//!
//! * `denied_addresses`: the addresses of denied names, each kept while the egress lives
//! * `look_up_pool`: places for look-ups, and the look-ups that are under way
//! * `nat64`: the prefixes of NAT64 of this host's network
//! * `pace`: the pace of what a program inside can cause without limit
//! * `synthetic`: the addresses that the DNS stub gave out, each for one name
//! * `unanswered`: the names that were not answered in time

pub(crate) mod denied_addresses;
pub(crate) mod look_up_pool;
pub(crate) mod nat64;
pub(crate) mod pace;
pub(crate) mod synthetic;
pub(crate) mod unanswered;
