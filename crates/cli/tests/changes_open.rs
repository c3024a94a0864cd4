//! Files that other programs have open while a run is committed.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs::{self, File};
use std::io::Read as _;
use support::{Bench, benches, needs_root, report, stderr, stdout, user};

const REPLACE: &str = "echo run > new; mv -f new f";

#[test]
fn a_file_that_is_only_read_is_committed_and_named() {
    for bench in benches() {
        for json in [false, true] {
            let path = bench.write("f", "before\n");
            bench.write("unread", "before\n");
            let mut reader = File::open(&path).unwrap();
            let mut words =
                vec!["run", "-v", "--changes", "commit", "--shell", "echo run > new; mv -f new f; rm unread"];
            if json {
                words.insert(1, "--json");
            }
            let output = bench.run(&words);
            assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
            if json {
                assert_eq!(report(&output)["changes"]["open_for_reading"], serde_json::json!([{"text": "f"}]));
            } else {
                assert!(
                    stderr(&output).contains("the version from before: f\n"),
                    "{}: {}",
                    bench.who(),
                    stderr(&output)
                );
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), "run\n", "{}", bench.who());
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "before\n", "{}: the reader keeps its version", bench.who());
            // Without -v no search takes place.
            bench.write("f", "before\n");
            let _reader = File::open(&path).unwrap();
            let quiet = bench.run(["run", "--shell", REPLACE]);
            assert!(quiet.status.success() && !stderr(&quiet).contains("open for reading"), "{}", stderr(&quiet));
        }
    }
}

/// A lease on a file of another user needs a capability that an ordinary user has not.
#[test]
fn a_replaced_file_that_could_not_be_watched_is_reported() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(Some(user()));
    let theirs = |bench: &Bench| {
        let path = bench.write("f", "before\n");
        std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    };
    theirs(&bench);
    let output = bench.run(["run", "--changes", "commit", "--shell", REPLACE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("1 file was replaced or deleted although nothing here tells"),
        "{}",
        stderr(&output)
    );
    theirs(&bench);
    let output = bench.run(["run", "--json", "--changes", "commit", "--shell", REPLACE]);
    assert_eq!(report(&output)["changes"]["unwatched"], 1);
    theirs(&bench);
    assert!(bench.run(["run", "--changes", "review", "--shell", REPLACE]).status.success());
    let output = bench.run(["changes", "accept"]);
    assert!(stdout(&output).contains("accepted M f"), "{}{}", stdout(&output), stderr(&output));
    assert!(stderr(&output).contains("1 file was replaced"), "{}", stderr(&output));
    // A file of the user's own is watched.
    bench.write("f", "before\n");
    let output = bench.run(["run", "--changes", "commit", "--shell", REPLACE]);
    assert!(output.status.success() && !stderr(&output).contains("although"), "{}", stderr(&output));
}
