//! Destinations, `HOST:PORT`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_policy::net::fuzz::fuzz_target(data));
