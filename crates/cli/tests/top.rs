//! Changes of a run to the workspace's own directory.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use support::{Bench, benches, stderr, stdout};

fn mode(bench: &Bench) -> u32 {
    fs::metadata(&bench.workspace).unwrap().mode() & 0o7777
}

fn set_mode(bench: &Bench, mode: u32) {
    fs::set_permissions(&bench.workspace, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_mode_that_a_run_gives_its_directory_arrives_with_the_rest() {
    for bench in benches() {
        for disk in [None, Some("--disk=20M")] {
            set_mode(&bench, 0o755);
            let who = bench.who();
            let words = ["run", "--changes=commit"].into_iter().chain(disk).chain(["--shell", "chmod 711 ."]);
            let output = bench.run(words);
            assert_eq!(output.status.code(), Some(0), "{who} {disk:?}: {}", stderr(&output));
            assert_eq!(mode(&bench), 0o711, "{who} {disk:?}");
            // A run that leaves it alone says nothing of it.
            let words = ["--changes=commit"].into_iter().chain(disk).chain(["--shell", "date > f"]);
            let (report, code) = bench.json(words);
            assert_eq!(code, 0, "{who} {disk:?}: {report}");
            let changes = report["changes"]["changes"].as_array().unwrap();
            assert_eq!(changes.len(), 1, "{who} {disk:?}: {report}");
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}

#[test]
fn the_mode_of_the_directory_itself_is_reviewed() {
    for bench in benches() {
        set_mode(&bench, 0o755);
        let who = bench.who();
        for (decision, wanted) in [("reject", 0o755), ("accept", 0o711)] {
            let output = bench.run(["run", "--changes=review", "--shell", "chmod 711 ."]);
            assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
            assert_eq!(mode(&bench), 0o755, "{who}");
            let shown = stdout(&bench.run(["changes", "show"]));
            assert!(shown.lines().any(|line| line == "P ."), "{who}: {shown}");
            let output = bench.run(["changes", decision]);
            assert_eq!(output.status.code(), Some(0), "{who} {decision}: {}", stderr(&output));
            assert_eq!(mode(&bench), wanted, "{who} {decision}");
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_directory_that_a_run_closes_to_its_owner_can_be_reviewed() {
    for bench in benches() {
        for (mode_inside, disk) in [("000", None), ("311", None), ("000", Some("--disk=20M"))] {
            set_mode(&bench, 0o755);
            let who = bench.who();
            let script = format!("echo new > f; chmod {mode_inside} .");
            let words = ["run", "--changes=review"].into_iter().chain(disk).chain(["--shell", &script]);
            let output = bench.run(words);
            assert_eq!(output.status.code(), Some(0), "{who} {mode_inside} {disk:?}: {}", stderr(&output));
            let shown = bench.run(["changes", "show"]);
            assert_eq!(shown.status.code(), Some(0), "{who} {mode_inside} {disk:?}: {}", stderr(&shown));
            assert!(stdout(&shown).lines().any(|line| line.starts_with("A f")), "{who}: {}", stdout(&shown));
            let output = bench.run(["changes", "accept", "f"]);
            assert_eq!(output.status.code(), Some(0), "{who} {mode_inside} {disk:?}: {}", stderr(&output));
            assert_eq!(fs::read_to_string(bench.workspace.join("f")).unwrap(), "new\n");
            let output = bench.run(["changes", "reject"]);
            assert_eq!(output.status.code(), Some(0), "{who} {mode_inside} {disk:?}: {}", stderr(&output));
            assert_eq!(mode(&bench), 0o755, "{who}");
            fs::remove_file(bench.workspace.join("f")).unwrap();
        }
        // The rest arrives; a person who owns the directory can list and enter it whatever the run wanted.
        let output = bench.run(["run", "--changes=commit", "--shell", "echo new > f; chmod 000 ."]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let kept = if bench.user.is_some() { 0o500 } else { 0o000 };
        assert_eq!(mode(&bench), kept, "{}", bench.who());
        set_mode(&bench, 0o755);
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}
