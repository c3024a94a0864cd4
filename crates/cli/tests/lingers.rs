//! A sandbox that was killed and is not gone: `nexus` reports it, leaves it to a later command and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, benches, is_root, processes_with, random, skip, stderr, wait_until};

const PATIENCE: Duration = Duration::from_secs(20);

/// Traces a process, so that the kernel keeps it and its whole pid namespace after its death until this program ends.
const TRACER: &str = r"
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, int(sys.argv[1]), None, None) != 0:
    raise OSError(ctypes.get_errno(), 'PTRACE_SEIZE')
print('up', flush=True)
sys.stdin.read()
";

/// Holds the sandbox of the process with these words in the kernel.
struct Held(Child);

impl Held {
    fn hold(bench: &Bench, words: &str) -> Self {
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let found = || processes_with(words).into_iter().find(|pid| name(*pid) == "sleep\n");
        wait_until("the command", PATIENCE, || found().is_some());
        let mut tracer = bench.command_as_root("python3");
        tracer.args(["-c", TRACER, &found().unwrap().to_string()]);
        let mut tracer = tracer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        Self(tracer)
    }

    fn let_go(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// Reports whether this process may trace the commands of its sandboxes.
fn may_trace() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let may = is_root() || matches!(scope.trim(), "" | "0");
    if !may {
        skip::skipped("only root may trace another process here");
    }
    may
}

fn ended(mut child: Child, bench: &Bench) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{}: nexus waits: {}", bench.who(), stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a command to its time limit while the kernel holds its sandbox.
fn run_and_leave(bench: &Bench, flags: &[&str]) -> (Held, Output) {
    let words = format!("600.{}", random());
    let mut command = bench.nexus(["run", "--timeout", "2s", "--grace", "10ms"]);
    command.args(flags).args(["--shell", &format!("echo work > made; exec sleep {words}")]);
    let child = started(command);
    let held = Held::hold(bench, &words);
    (held, ended(child, bench))
}

/// The number of the only run that is recorded.
fn recorded(bench: &Bench) -> String {
    let all = std::fs::read_dir(bench.state.join("runs")).unwrap();
    let mut names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.find(|name| !name.contains('.')).unwrap()
}

#[test]
fn a_killed_sandbox_that_the_kernel_keeps_holds_up_no_end() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, output) = run_and_leave(&bench, &["--changes", "commit"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(124), "{}: {said}", bench.who());
        assert!(said.contains("The kernel still takes the sandbox apart"), "{}: {said}", bench.who());
        let run = recorded(&bench);
        assert!(!bench.workspace.join("made").exists(), "{}: committed before it was gone", bench.who());

        let began = Instant::now();
        let next = bench.run(["run", "--", "true"]);
        assert_eq!(next.status.code(), Some(0), "{}: {}", bench.who(), stderr(&next));
        assert!(stderr(&next).contains("still takes the sandbox of the run"), "{}: {}", bench.who(), stderr(&next));
        assert!(began.elapsed() < Duration::from_secs(5), "{}: {:?}", bench.who(), began.elapsed());
        let early = bench.run(["changes", "accept", "--run", &run]);
        assert!(!early.status.success(), "{}: {}", bench.who(), stderr(&early));
        assert!(bench.state.join("layers").join(&run).join("upper/made").exists(), "{}: it is lost", bench.who());

        held.let_go();
        let accept = || bench.run(["changes", "accept", "--run", &run]).status.success();
        wait_until("an accept", PATIENCE, accept);
        assert_eq!(std::fs::read_to_string(bench.workspace.join("made")).unwrap(), "work\n", "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn what_a_left_run_discards_goes_away_later() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, output) = run_and_leave(&bench, &["--changes", "discard"]);
        assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("is not removed yet"), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.leftovers().is_empty(), "{}: no record", bench.who());
        held.let_go();
        wait_until("the removal", PATIENCE, || {
            bench.run(["changes", "list"]).status.success() && bench.leftovers().is_empty()
        });
        assert!(!bench.workspace.join("made").exists(), "{}", bench.who());
    }
}

#[test]
fn a_direct_run_that_is_left_is_found_by_its_record() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, output) = run_and_leave(&bench, &["--direct"]);
        assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("The kernel still takes the sandbox apart"), "{}", stderr(&output));
        let next = bench.run(["run", "--direct", "--", "true"]);
        assert_eq!(next.status.code(), Some(125), "{}: it runs beside the other: {}", bench.who(), stderr(&next));
        held.let_go();
        wait_until("a run", PATIENCE, || bench.run(["run", "--direct", "--", "true"]).status.success());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn the_end_of_a_command_waits_for_its_sandbox_and_says_so() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let words = format!("600.{}", random());
        let script = format!("echo work > made; sleep {words} & read line; exit 0");
        let mut command = bench.nexus(["run", "--stdin", "--changes", "commit", "--shell"]);
        command.arg(&script).stdin(Stdio::piped());
        let mut child = started(command);
        let held = Held::hold(&bench, &words);
        drop(child.stdin.take());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains("the kernel still frees what its processes held"), "{}: {said}", bench.who());
        assert_eq!(child.try_wait().unwrap(), None, "{}", bench.who());
        held.let_go();
        let output = ended(child, &bench);
        assert_eq!(output.status.code(), Some(0), "{}: {:?}", bench.who(), lines.collect::<Vec<_>>());
        assert!(bench.workspace.join("made").exists(), "{}", bench.who());
    }
}
