//! The words of a policy: names, addresses, ports, and the rules that people write with them.

pub mod bypass;
pub mod groups;
pub mod host_port;
mod literal;
pub mod name;
pub mod pattern;
pub mod ports;
pub mod ranges;
pub mod rule;
pub(in crate::net) mod rule_set;
pub mod target;
