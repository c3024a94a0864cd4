//! A run that may open only a few files: whatever cannot be opened, the message says that nothing was run.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::process::Output;
use support::{Bench, benches, stderr, stdout};

/// Runs `nexus` with these limits of open files, soft and hard, and with so many descriptors more than the standard streams.
fn run_with(bench: &Bench, (soft, hard): (u32, u32), open: u32, words: &str) -> Output {
    let line = format!(
        "for ((i = 0; i < {open}; i++)); do exec {{fd}}</dev/null; done
        exec prlimit --nofile={soft}:{hard} \"$0\" {words}"
    );
    bench.command("bash").args(["-c", &line]).arg(bench.program()).output().unwrap()
}

fn is_refused(bench: &Bench, output: &Output) -> bool {
    let err = stderr(output);
    let what = format!("{}: {err}", bench.who());
    // What is used up is not a sign of a file system or a kernel that cannot do something.
    let is_used_up = err.contains("Too many open files");
    assert!(!is_used_up || !err.contains("file system") && !err.contains("not allowed here"), "{what}");
    assert!(!err.contains("output could not be passed on") && !err.contains("the command was ended"), "{what}");
    match output.status.code() {
        Some(0) => assert_eq!(stdout(output), "ran\n", "{what}"),
        code => assert_eq!((code, stdout(output).as_str()), (Some(125), ""), "{what}"),
    }
    output.status.code() != Some(0)
}

#[test]
fn a_limit_below_every_sandbox_is_named_before_anything_is_made() {
    for bench in benches() {
        for words in ["run --direct -- echo ran", "run --net allowlist --allow a.b -- echo ran", "run -d -- echo ran"] {
            for (files, open) in [(12, 0), (16, 0), (28, 0), (32, 0), (49, 0), (64, 15)] {
                let output = run_with(&bench, (files, files), open, words);
                let err = stderr(&output);
                assert!(is_refused(&bench, &output), "{} {words} {files}", bench.who());
                assert!(err.contains(&format!("nexus may open at most {files} files here")), "{err}");
                assert!(err.contains("Nothing was run. Raise the limit (ulimit -n)"), "{err}");
                assert!(open == 0 || err.contains("that are open already"), "{err}");
            }
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        // Harmless twins: room enough, and a soft limit that this process may raise.
        for (limits, open) in [((80, 80), 0), ((95, 95), 15), ((20, 4096), 0)] {
            let output = run_with(&bench, limits, open, "run --direct -- echo ran");
            assert!(!is_refused(&bench, &output), "{} {limits:?}: {}", bench.who(), stderr(&output));
        }
    }
}

#[test]
fn a_limit_above_the_smallest_sandbox_is_named_at_every_step() {
    for bench in benches() {
        for files in 50..72 {
            let output = run_with(&bench, (files, files), 0, "run --net allowlist --allow a.b -- echo ran");
            assert!(!is_refused(&bench, &output) || stderr(&output).contains("ulimit -n"), "{}", stderr(&output));
        }
    }
}

/// With many descriptors open already the first one that is missing is found where it is needed.
#[test]
fn a_run_with_too_few_descriptors_says_that_nothing_was_run() {
    for bench in benches() {
        let mut unstarted = 0;
        // What a machine has installed is bound by `auto`, and takes descriptors of the set-up.
        for free in 12..100 {
            let words = "run --profile none --net allowlist --allow a.b -- echo ran";
            let output = run_with(&bench, (300, 300), 297 - free, words);
            let err = stderr(&output);
            if is_refused(&bench, &output) && err.contains("the command could not be started") {
                unstarted += 1;
                assert!(err.contains("Nothing was run"), "{}: {err}", bench.who());
            }
        }
        assert!(unstarted > 0, "{}: no limit stops the request to start", bench.who());
    }
}

#[test]
fn a_user_without_processes_left_is_pointed_to_the_limit() {
    let Some(bench) = benches().into_iter().find(|bench| bench.user.is_some()) else { return };
    let mut refused = 0;
    for processes in 2..8 {
        let line =
            format!("exec prlimit --nproc={processes}:{processes} \"$0\" run --net allowlist --allow a.b -- echo ran");
        let output = bench.command("sh").args(["-c", &line]).arg(bench.program()).output().unwrap();
        if is_refused(&bench, &output) {
            refused += 1;
            assert!(stderr(&output).contains("ulimit -u"), "{processes}: {}", stderr(&output));
        }
    }
    assert!(refused > 0, "no limit stops the run");
}

#[test]
fn a_stack_that_is_too_small_is_named() {
    for bench in benches() {
        for (stack, runs) in [(64, false), (128, false), (255, false), (8192, true)] {
            let line = format!("ulimit -Ss {stack}; exec \"$0\" run -q -- echo ran");
            let output = bench.command("bash").args(["-c", &line]).arg(bench.program()).output().unwrap();
            let told = format!("{} {stack}: {:?} {}", bench.who(), output.status, stderr(&output));
            assert_eq!(output.status.code(), Some(if runs { 0 } else { 125 }), "{told}");
            assert_eq!(stdout(&output), if runs { "ran\n" } else { "" }, "{told}");
            assert!(
                runs || stderr(&output).contains(&format!("the stack is limited to {stack} KiB (ulimit -s)")),
                "{told}"
            );
        }
    }
}
