//! Bodies of the calls of a fleet.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::wire::wire(data));
