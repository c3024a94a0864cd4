//! The first bytes of TLS.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::hello::hello(data));
