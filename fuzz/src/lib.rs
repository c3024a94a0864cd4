//! What must hold for what in Nexus reads bytes of an adversary: one function for each reader, which panics
//! where its property fails.
//!
//! The functions know nothing of a fuzzer. `src/bin/` gives each to libFuzzer; the ordinary tests of the crates take
//! these files in with `#[path]` and call them with every file of `seeds/`, so that what was found once is tested by
//! `cargo test`. `nexus_policy::net::fuzz` has those of the network policy, and
//! `nexus_mothership::fuzz` those of the control plane.

#![forbid(unsafe_code)]

pub mod claims;
pub mod command_line;
pub mod dns;
pub mod frames;
pub mod gitconfig;
pub mod hello;
pub mod http;
pub mod journal;
pub mod policy;
pub mod profile;
pub mod socks;
pub mod terminal_output;
pub mod warm;
pub mod wire;
