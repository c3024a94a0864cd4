//! `--allow-ptrace` with real programs: LeakSanitizer, gdb and strace; and what tracing must not reach.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use support::{Bench, benches, stderr, stdout};

/// Leaks when it is called with an argument.
const LEAKY: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char *kept;
int answer(int count) {
    kept = malloc(100);
    memset(kept, count, 100);
    if (count > 1) kept = NULL;
    return 40 + count;
}
int main(int count, char **words) {
    (void)words;
    printf("%d\n", answer(count));
    return 0;
}
"#;

/// Builds it outside, where the compiler runs without a sandbox.
fn built(bench: &Bench, flags: &[&str]) {
    bench.write("leaky.c", LEAKY);
    let done = bench.command("gcc").args(["-g", "-O0", "-o", "leaky", "leaky.c"]).args(flags).output().unwrap();
    assert!(done.status.success(), "{}", stderr(&done));
}

fn run(bench: &Bench, flags: &[&str], command: &[&str]) -> std::process::Output {
    bench.run([&["run", "--changes", "discard"][..], flags, &["--"], command].concat())
}

#[test]
fn leak_sanitizer_works_with_the_flag_and_is_named_without() {
    for bench in benches() {
        built(&bench, &["-fsanitize=address"]);
        let fine = run(&bench, &["--allow-ptrace"], &["./leaky"]);
        assert_eq!((fine.status.code(), &*stdout(&fine)), (Some(0), "41\n"), "{}: {}", bench.who(), stderr(&fine));
        let leak = run(&bench, &["--allow-ptrace"], &["./leaky", "x"]);
        let told = stderr(&leak);
        assert!(told.contains("detected memory leaks") && told.contains("in answer"), "{}: {told}", bench.who());
        assert!(!told.contains("perhaps:"), "{told}");

        let without = run(&bench, &[], &["./leaky"]);
        let told = stderr(&without);
        assert!(!without.status.success(), "{}: {told}", bench.who());
        let line = told.lines().find(|line| line.starts_with("nexus: perhaps:")).unwrap_or_default();
        assert!(line.contains("--allow-ptrace") && line.contains("LeakSanitizer"), "{}: {told}", bench.who());
    }
}

#[test]
fn address_sanitizer_alone_needs_no_flag() {
    for bench in benches() {
        built(&bench, &["-fsanitize=address"]);
        let done = run(&bench, &["--env", "ASAN_OPTIONS=detect_leaks=0"], &["./leaky"]);
        assert_eq!((done.status.code(), &*stdout(&done)), (Some(0), "41\n"), "{}: {}", bench.who(), stderr(&done));
    }
}

#[test]
fn gdb_stops_at_a_breakpoint_with_the_flag() {
    let script =
        ["gdb", "-q", "-batch", "-ex", "break answer", "-ex", "run", "-ex", "print count", "-ex", "finish", "./leaky"];
    for bench in benches() {
        built(&bench, &[]);
        let done = run(&bench, &["--allow-ptrace"], &script);
        let said = stdout(&done);
        assert!(said.contains("$1 = 1") && said.contains("Value returned is $2 = 41"), "{said}{}", stderr(&done));
        let without = run(&bench, &[], &["gdb", "-q", "-batch", "-ex", "run", "./leaky"]);
        assert!(!stdout(&without).contains("41"), "{}", stdout(&without));
    }
}

#[test]
fn strace_counts_calls_and_attaches_with_the_flag() {
    for bench in benches() {
        let script = "strace -f -e trace=execve -o /tmp/calls sh -c 'ls; ls' >/dev/null && grep -c execve /tmp/calls; \
                      sleep 30 & strace -p $! -o /tmp/attached -e trace=none & sleep 0.2; kill %1; wait %2; cat /tmp/attached";
        let done = run(&bench, &["--allow-ptrace"], &["bash", "-c", script]);
        let said = stdout(&done);
        assert!(said.starts_with(|first: char| ('1'..='9').contains(&first)), "{said}{}", stderr(&done));
        assert!(said.contains("killed by SIGTERM"), "{}: {said}{}", bench.who(), stderr(&done));
        let without = run(&bench, &[], &["strace", "true"]);
        assert!(stderr(&without).contains("nexus: perhaps:"), "{}", stderr(&without));
    }
}

#[test]
fn a_profile_may_ask_for_it_and_a_workspace_file_may_not() {
    for bench in benches() {
        bench.write("nexus.yaml", "debug: true\n");
        let refused = run(&bench, &[], &["true"]);
        assert_eq!(refused.status.code(), Some(125));
        assert!(
            stderr(&refused).contains("nexus.yaml:1:8 would let processes trace each other"),
            "{}",
            stderr(&refused)
        );
        // What the person said themselves is not a widening.
        assert!(run(&bench, &["--allow-ptrace"], &["strace", "-o", "/dev/null", "true"]).status.success());
        bench.write("nexus.yaml", "debug: false\n");
        let narrowed = run(&bench, &["--allow-ptrace"], &["strace", "-o", "/dev/null", "true"]);
        assert!(!narrowed.status.success(), "{}", stderr(&narrowed));
        std::fs::remove_file(bench.workspace.join("nexus.yaml")).unwrap();

        let folder = bench.home.join(".config/nexus/profiles");
        let made = bench.command("mkdir").arg("-p").arg(&folder).status().unwrap();
        assert!(made.success());
        std::fs::write(folder.join("debugger.yaml"), "debug: true\n").unwrap();
        bench.give(&folder.join("debugger.yaml"));
        let done = run(&bench, &["--profile", "debugger"], &["strace", "-o", "/dev/null", "true"]);
        assert!(done.status.success(), "{}: {}", bench.who(), stderr(&done));
        let explained = stdout(&bench.run(["explain", "--profile", "debugger"]));
        assert!(
            explained.contains("trace processes of the sandbox") && explained.contains("debugger.yaml:1:8"),
            "{explained}"
        );
    }
}

#[test]
fn the_receipt_says_that_tracing_was_allowed() {
    for bench in benches() {
        for (flags, said) in [(&["--allow-ptrace"][..], true), (&[], false)] {
            let copy = bench.home.join("receipt");
            let flags = [flags, &["--receipt", copy.to_str().unwrap()]].concat();
            assert!(run(&bench, &flags, &["true"]).status.success());
            let shown = stdout(&bench.run(["receipt", "show", copy.to_str().unwrap()]));
            assert_eq!(shown.contains("could trace each other"), said, "{shown}");
            std::fs::remove_file(copy).unwrap();
        }
    }
}

/// Attaches to every new process as early as it can, and prints which program each ran by then. It stops newcomers first, so
/// that one that has not executed yet stays where it is.
const HUNTER: &str = r"
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
own, seen = os.getpid(), {1, os.getpid()}
print('ready', flush=True)
end = time.monotonic() + float(sys.argv[1])
early = attached = 0
while time.monotonic() < end:
    for name in os.listdir('/proc'):
        if not name.isdigit() or int(name) in seen:
            continue
        pid = int(name)
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
        for _ in range(200):
            if libc.ptrace(SEIZE, pid, 0, 0) == 0:
                attached += 1
                try:
                    program = os.readlink(f'/proc/{pid}/exe')
                except OSError:
                    program = '?'
                if program != '/usr/bin/sleep':
                    early += 1
                    print('early', program, flush=True)
                libc.ptrace(DETACH, pid, 0, 0)
                break
        seen.add(pid)
        try:
            os.kill(pid, signal.SIGCONT)
        except OSError:
            pass
print('attached', attached, 'early', early, flush=True)
";

#[test]
fn a_command_that_starts_cannot_be_traced_before_its_exec() {
    for bench in benches() {
        bench.write("hunter.py", HUNTER);
        let flags = ["run", "--detach", "--allow-ptrace", "--changes", "discard", "--name", "hunted"];
        let started = bench.run([&flags[..], &["--", "python3", "hunter.py", "6"]].concat());
        assert!(started.status.success(), "{}", stderr(&started));
        support::wait_until("the hunter", std::time::Duration::from_secs(20), || {
            stdout(&bench.run(["logs", "hunted"])).contains("ready")
        });
        let mut execs: Vec<_> = Vec::new();
        for _ in 0..25 {
            let exec: Command = bench.nexus(["exec", "hunted", "--", "/usr/bin/sleep", "0.05"]);
            execs.push({ exec }.stderr(Stdio::null()).spawn().unwrap());
            if execs.len() == 5 {
                execs.drain(..).for_each(|mut exec| assert!(exec.wait().is_ok()));
            }
        }
        bench.run(["wait", "hunted"]);
        let said = stdout(&bench.run(["logs", "hunted"]));
        bench.run(["rm", "-f", "hunted"]);
        assert!(said.contains("attached ") && !said.contains("attached 0"), "{}: {said}", bench.who());
        assert!(said.contains("early 0") && !said.contains("early /"), "{}: {said}", bench.who());
    }
}

#[test]
fn the_programs_of_these_tests_are_there() {
    for program in ["/usr/bin/gdb", "/usr/bin/strace", "/usr/bin/gcc"] {
        assert!(Path::new(program).exists(), "{program}: cargo xtask test installs it");
    }
}

#[test]
fn setarch_starts_a_program_without_random_addresses() {
    for bench in benches() {
        let output = run(&bench, &[], &["setarch", "-R", "cat", "/proc/self/personality"]);
        assert_eq!((stdout(&output).trim(), output.status.code()), ("00040000", Some(0)), "{}", stderr(&output));
    }
}
