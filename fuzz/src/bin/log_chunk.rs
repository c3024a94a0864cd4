//! Chunks of output.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_mothership::fuzz::log_chunk(data));
