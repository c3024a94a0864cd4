//! System calls of one launch, counted under strace(1), so that a launch that becomes dearer is noticed on any machine.
//! The bounds leave room for what a launcher does between launches, which depends on when it finds the time.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_driver::namespace::launcher::Launcher;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use support::{Bench, launcher_program};

/// Calls of the launcher and of PID 1 with the command's process before its exec, for one launch.
#[derive(Debug, PartialEq, PartialOrd)]
struct Calls {
    launcher: usize,
    first: usize,
    confined: usize,
}

fn calls(bench: &Bench, keep: [&str; 2], layered: bool) -> Calls {
    let (few, many) = (counted(bench, keep, layered, 2), counted(bench, keep, layered, 12));
    let launcher = (many.0 - few.0) / 10;
    // The last launch: nothing is made for the first time.
    let (first, confined) = many.1;
    Calls { launcher, first, confined }
}

/// All calls of the launcher; those of the last sandbox's PID 1 and of its command before the exec.
fn counted(bench: &Bench, keep: [&str; 2], layered: bool, launches: usize) -> (usize, (usize, usize)) {
    let log = bench.path(&format!("log-{}", nexus_model::RunId::new()));
    let mut program = Command::new("strace");
    program.arg("-f").arg("-o").arg(&log).arg(launcher_program()).args(keep);
    let remote = Launcher::start(program).unwrap();
    for _ in 0..launches {
        let target = Path::new("/workspace");
        let mut draft = if layered { bench.layered(target, "") } else { bench.draft(target, "") };
        draft.argv = vec!["/bin/true".into()];
        bench.output(Some(&remote), draft);
    }
    remote.stop().unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    let mut order: Vec<&str> = Vec::new();
    let mut by_process: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.contains("resumed>") && !line.contains("+++") && !line.contains("---"))
    {
        let (pid, call) = line.split_once(' ').unwrap();
        if !by_process.contains_key(pid) {
            order.push(pid);
        }
        by_process.entry(pid).or_default().push(call.trim_start());
    }
    let last =
        order.iter().rposition(|pid| by_process[pid].iter().any(|call| call.starts_with("sethostname("))).unwrap();
    let command = &by_process[order[last + 1]];
    let confined = command.iter().position(|call| call.starts_with("execve(")).unwrap();
    (by_process[order[0]].len(), (by_process[order[last]].len(), confined))
}

#[test]
fn a_launch_takes_no_more_system_calls_than_it_should() {
    let bench = Bench::new();
    for (keep, layered, launcher) in
        [(["0", "false"], false, 53), (["2", "true"], false, 56), (["2", "true"], true, 98)]
    {
        let most = Calls { launcher, first: 310, confined: 86 };
        let seen = calls(&bench, keep, layered);
        println!("{keep:?}, layered {layered}: {seen:?}");
        assert!(
            seen.launcher <= most.launcher && seen.first <= most.first && seen.confined <= most.confined,
            "{keep:?}, layered {layered}: {seen:?}, at most {most:?}"
        );
        assert!(seen.first > 50 && seen.launcher > 10 && seen.confined > 20, "the log was not understood: {seen:?}");
    }
}
