//! Profiles and the file of a workspace.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::profile::profile(data));
