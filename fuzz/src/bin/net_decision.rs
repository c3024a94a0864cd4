//! What may be dialled: four bytes of an answer, then a destination.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_policy::net::fuzz::fuzz_decision(data));
