//! Certificate requests of territories.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_mothership::fuzz::csr(data));
