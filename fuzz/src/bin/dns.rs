//! DNS questions.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::dns::question(data));
