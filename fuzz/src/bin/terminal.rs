//! Output of a sandbox on a terminal: one byte says how it is cut, then the output.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nexus_fuzz::terminal_output::terminal(data));
