//! A core handler of the host, as apport and systemd-coredump install one: `core_pattern` names a program.

use super::case::Case;
use super::world::{Who, ensure};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATTERN: &str = "/proc/sys/kernel/core_pattern";
const HANDLER: &str = "/usr/bin/core-handler";
/// File to which the handler writes a line for each crash that the kernel hands to it.
const SEEN: &str = "/tmp/crashes";
const CRASH: &str = "kill -SEGV $$";

pub const CASES: &[Case] = &[
    ("a_crash_inside_starts_no_core_handler_of_the_host", |world| {
        with_the_pattern_put_back(|| only_the_hosts_crashes_are_handled(&world.root, &world.user))
    }),
    ("nothing_is_run_where_core_files_go_to_a_socket", |world| {
        with_the_pattern_put_back(|| [&world.root, &world.user].into_iter().try_for_each(a_socket_is_refused))
    }),
];

fn with_the_pattern_put_back(case: impl FnOnce() -> Result<(), String>) -> Result<Option<String>, String> {
    let before = fs::read_to_string(PATTERN).map_err(|error| format!("{PATTERN}: {error}"))?;
    let result = case();
    fs::write(PATTERN, before.trim_end()).map_err(|error| format!("{PATTERN}: {error}"))?;
    result.map(|()| None)
}

/// Before Linux 6.16 such a pattern is the name of a file; it is refused there as well.
fn a_socket_is_refused(who: &Who) -> Result<(), String> {
    for (pattern, code) in [("@/run/cores.socket", 125), ("@@/run/cores.socket", 125), ("core", 0)] {
        fs::write(PATTERN, pattern).map_err(|error| format!("{PATTERN}: {pattern}: {error}"))?;
        let run = who.json(&["--", "true"])?;
        ensure(run.code == code, || format!("{}: {pattern}: ended with {}: {}", who.name, run.code, run.reported))?;
        let names_it = run.reported.pointer("/error/code").and_then(serde_json::Value::as_str) == Some("core_pattern");
        ensure(names_it == (code != 0), || format!("{}: {pattern}: {}", who.name, run.reported))?;
    }
    Ok(())
}

fn only_the_hosts_crashes_are_handled(root: &Who, user: &Who) -> Result<(), String> {
    let io = |path: &'static str| move |error: std::io::Error| format!("{path}: {error}");
    fs::write(HANDLER, format!("#!/bin/sh\ncat > /dev/null\necho \"$*\" >> {SEEN}\n")).map_err(io(HANDLER))?;
    fs::set_permissions(HANDLER, Permissions::from_mode(0o755)).map_err(io(HANDLER))?;
    fs::write(PATTERN, format!("|{HANDLER} uid=%u limit=%c")).map_err(io(PATTERN))?;
    for who in [root, user] {
        crash_outside(who)?;
    }
    // The handler works, so what it misses from here on was not handed to it.
    wait_for(2)?;
    for who in [root, user] {
        let run = who.json(&["--shell", CRASH])?;
        ensure(run.code == 128 + 11, || {
            format!("{}: the command ended with {}: {}", who.name, run.code, run.reported)
        })?;
    }
    crash_outside(user)?;
    wait_for(3)
}

/// Crashes a shell as this user, without a limit that a sandbox would have.
fn crash_outside(who: &Who) -> Result<(), String> {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", CRASH]).uid(who.uid).gid(who.uid).stdin(Stdio::null()).stderr(Stdio::null());
    shell.status().map(drop).map_err(|error| format!("/bin/sh: {error}"))
}

/// Waits until the handler has seen this many crashes, and makes sure that it saw no more.
fn wait_for(wanted: usize) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let seen = fs::read_to_string(Path::new(SEEN)).unwrap_or_default();
        let count = seen.lines().count();
        ensure(count <= wanted, || format!("the handler saw {count} crashes and not {wanted}:\n{seen}"))?;
        if count == wanted {
            return Ok(());
        }
        ensure(Instant::now() < end, || format!("the handler saw {count} crashes of {wanted}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
}
