//! The lines by which a test says that it tries nothing on this machine, or a part only. `cargo xtask test` counts the first
//! as skipped and not as passed.

#![allow(dead_code, reason = "each test program uses its part")]

use std::io::Write;

/// Says that the test of this thread tries nothing here.
pub fn skipped(reason: &str) {
    say("skipped", reason);
}

/// Says that the test of this thread tries only a part of what it tries elsewhere.
pub fn partial(reason: &str) {
    say("partial", reason);
}

fn say(what: &str, reason: &str) {
    let thread = std::thread::current();
    let line = format!("\n{what} test {}: {}\n", thread.name().unwrap_or("main"), reason.replace('\n', " "));
    // Not by println!: the test harness shows what a test prints only when it fails. One write, since tests run side by side.
    let mut out = std::io::stdout().lock();
    let written = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    assert!(written.is_ok(), "{what}: {reason}: {written:?}");
}
