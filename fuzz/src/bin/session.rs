//! Frames between a client and the supervisor of a detached sandbox.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::session::session(data));
