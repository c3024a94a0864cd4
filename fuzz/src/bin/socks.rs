//! Both messages of a SOCKS client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::socks::frames(data));
