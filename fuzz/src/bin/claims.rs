//! Notes of a daemon about its claims.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::claims::claims(data));
