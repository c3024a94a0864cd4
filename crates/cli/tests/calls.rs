//! What a cold run asks of the kernel: counts, which depend on no clock and no load, so that a slow path cannot come back
//! unseen. Only the process that was started is counted here; its children have a test of their own.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use support::{Bench, benches, stderr};

/// Calls of `nexus` itself, in order. Those of starting a program (the dynamic linker, the runtime) are left out.
fn calls(bench: &Bench, arguments: &[&str]) -> Vec<String> {
    let log = bench.home.join("calls");
    let nexus = bench.nexus([] as [&str; 0]).get_program().to_owned();
    let traced = bench.command("strace").args(["-f", "-qq", "-o"]).arg(&log).arg(nexus).args(arguments).output();
    let output = traced.unwrap();
    assert!(output.status.success(), "{}: {}", bench.who(), stderr(&output));
    let text = fs::read_to_string(&log).unwrap();
    let pid = text.split_ascii_whitespace().next().unwrap();
    let of_nexus = text.lines().filter_map(|line| line.strip_prefix(pid)).map(|line| line.trim_start().to_owned());
    // The first thing that our own code does is to make the socket on which signals arrive.
    of_nexus
        .filter(|line| !line.starts_with("<...") && !line.starts_with("---") && !line.starts_with("+++"))
        // A debug build looks at each descriptor before it closes it.
        .filter(|line| !line.contains("F_GETFD"))
        .skip_while(|line| !line.starts_with("socketpair"))
        .collect()
}

/// Apart from what is done while the sandbox comes up, which is between the taking and the giving back of a lock and
/// takes no time of the run.
fn split(calls: &[String]) -> (Vec<&String>, usize) {
    let asked = calls.iter().rposition(|call| call.starts_with("sendmsg(")).unwrap();
    let from = calls[asked..].iter().position(|call| call.contains("LOCK_EX")).map_or(asked, |at| asked + at);
    let to = calls[asked..].iter().position(|call| call.contains("LOCK_UN")).map_or(asked, |at| asked + at);
    let tidying = if calls[from].contains("LOCK_EX") && from < to { from..to + 1 } else { from..from };
    let length = tidying.len();
    (calls.iter().enumerate().filter(|(at, _)| !tidying.contains(at)).map(|(_, call)| call).collect(), length)
}

#[test]
fn a_run_without_changes_makes_few_calls() {
    for bench in benches() {
        // A direct run looks for protected names before the command, one with a layer only at a commit: through the
        // workspace, the directories above, the homes of its users and git's configurations.
        // A run with a layer watches its overlay, and closes that.
        for (arguments, most) in
            [(&["run", "--", "/bin/true"][..], 320), (&["run", "--direct", "--", "/bin/true"], 310)]
        {
            // The first one makes the state directory, and the second one what the third one takes.
            calls(&bench, arguments);
            calls(&bench, arguments);
            let calls = calls(&bench, arguments);
            let (needed, tidying) = split(&calls);
            let all = calls.join("\n");
            println!("{} {arguments:?}: {} calls, and {tidying} of tidying", bench.who(), needed.len());
            assert!(needed.len() <= most, "{} {arguments:?}: {} calls\n{all}", bench.who(), needed.len());
            assert!(needed.len() > 80, "the log holds too little to judge: {all}");
            assert!(tidying <= 250, "{} {arguments:?}: {tidying} calls of tidying\n{all}", bench.who());
            let layered = !arguments.contains(&"--direct");
            assert_eq!(tidying > 0, layered, "only a run with a layer has something to tidy\n{all}");
            for slow in ["fsync", "fdatasync", "syncfs", "rmdir", "mkdir"] {
                assert!(
                    !needed.iter().any(|call| call.starts_with(slow)),
                    "{} {arguments:?}: {slow}\n{all}",
                    bench.who()
                );
            }
        }
    }
}
