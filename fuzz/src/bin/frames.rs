//! Frames between host and guest.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::frames::frames(data));
