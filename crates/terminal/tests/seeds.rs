//! Tries every input of the fuzzer for the terminal filter: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/src/terminal_output.rs"]
mod terminal_output;

#[test]
fn every_seed_of_the_terminal_filter_holds_its_properties() {
    seeds::each("terminal", terminal_output::terminal);
}
