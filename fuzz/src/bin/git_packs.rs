//! Packs of git with their indexes, and loose objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_git::fuzz::git_packs(data));
