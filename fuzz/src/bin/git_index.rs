//! Index files of git.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_git::fuzz::git_index(data));
