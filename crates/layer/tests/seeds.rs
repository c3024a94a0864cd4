//! Tries the inputs that the fuzzer starts from and those that it found: see the package `fuzz`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../../../fuzz/src/journal.rs"]
mod journal;
#[path = "../../../fuzz/seeds.rs"]
mod seeds;

#[test]
fn every_seed_of_the_journal_holds_its_properties() {
    seeds::each("journal", journal::journal);
}
