//! Journals of commits, and parked layers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::journal::journal(data));
