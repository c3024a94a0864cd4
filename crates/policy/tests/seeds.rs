//! Seeds of the fuzzer, and the inputs that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/command_line.rs"]
mod command_line;
#[path = "../../../fuzz/src/policy.rs"]
mod policy;
#[path = "../../../fuzz/src/profile.rs"]
mod profile;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

use nexus_policy::net::fuzz;

#[test]
fn every_seed_of_the_network_rules_holds_its_properties() {
    seeds::each("net_host", fuzz::fuzz_host);
    seeds::each("net_target", fuzz::fuzz_target);
    seeds::each("net_rule", fuzz::fuzz_rule);
    seeds::each("net_decision", fuzz::fuzz_decision);
    seeds::each("net_packages", fuzz::fuzz_packages);
}

#[test]
fn every_seed_of_the_profiles_holds_its_properties() {
    seeds::each("profile", profile::profile);
}

#[test]
fn every_seed_of_the_policies_holds_its_properties() {
    seeds::each("policy", policy::policy);
}

#[test]
fn every_seed_of_the_command_lines_holds_its_properties() {
    seeds::each("command_line", command_line::command_line);
}
