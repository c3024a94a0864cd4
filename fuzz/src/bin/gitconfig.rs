//! Configurations of git.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::gitconfig::gitconfig(data));
