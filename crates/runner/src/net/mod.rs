//! The network of a run, as far as it is not the egress itself.
//!
//! * [`addresses`]: lists the addresses of this host, which no rule for the public internet opens.
//! * [`record`]: keeps the record of every attempt to connect.
//! * [`variables`]: leads clients inside to the listeners.

pub mod addresses;
pub mod record;
pub mod variables;
