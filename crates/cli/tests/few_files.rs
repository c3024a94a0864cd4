//! A run that may open only a few files: whatever cannot be opened, the message says that nothing was run.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::{benches, stderr, stdout};

#[test]
fn a_run_with_too_few_descriptors_says_that_nothing_was_run() {
    for bench in benches() {
        let mut unstarted = 0;
        for files in 12..48 {
            let line = format!("ulimit -n {files}; exec \"$0\" run --net allowlist --allow a.b -- echo ran");
            let output = bench.command("sh").args(["-c", &line]).arg(bench.program()).output().unwrap();
            let (out, err) = (stdout(&output), stderr(&output));
            let what = format!("{}, {files} files: {err}", bench.who());
            if output.status.code() == Some(0) {
                assert_eq!(out, "ran\n", "{what}");
                continue;
            }
            assert_eq!((output.status.code(), out.as_str()), (Some(125), ""), "{what}");
            // What is used up is no sign of a file system or a kernel that cannot do something.
            let is_used_up = err.contains("Too many open files");
            assert!(!is_used_up || !err.contains("file system") && !err.contains("not allowed here"), "{what}");
            assert!(!err.contains("output could not be passed on") && !err.contains("the command was ended"), "{what}");
            if err.contains("the command could not be started") {
                unstarted += 1;
                assert!(err.contains("nothing was run"), "{what}");
            }
        }
        assert!(unstarted > 0, "{}: no limit stops the request to start", bench.who());
    }
}
