//! Chunked bodies: one byte says how they are cut, then the body.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::http::chunks(data));
