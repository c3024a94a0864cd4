//! What the fuzzer starts from, and what it found: see the package `fuzz`.

#[path = "../../../../fuzz/seeds.rs"]
mod seeds_of;
#[path = "../../../../fuzz/src/terminal_output.rs"]
mod terminal_output;

#[test]
fn every_seed_of_the_terminal_filter_holds_its_properties() {
    seeds_of::each("terminal", terminal_output::terminal);
}
