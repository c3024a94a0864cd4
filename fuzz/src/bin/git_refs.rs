//! Refs of git, and lists of packed ones.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_git::fuzz::git_refs(data));
