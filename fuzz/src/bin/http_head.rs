//! Heads of HTTP requests and responses, and the framing that they ask for.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::http::head(data));
