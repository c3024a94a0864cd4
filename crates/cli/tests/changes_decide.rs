//! A decision about waiting changes takes the named ones, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use support::{Bench, benches, is_root, stderr, stdout};

/// Parks what a script does.
fn park(bench: &Bench, script: &str) -> String {
    let (report, code) = bench.json(["--changes", "review", "--shell", script]);
    assert_eq!(code, 0, "{report}");
    report["run_id"].as_str().unwrap().to_owned()
}

fn typed(bench: &Bench, arguments: &[&str], text: &str) -> Output {
    let mut command = bench.nexus(arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Fails unless the command is refused as wrong usage with this text, and changes nothing.
fn assert_refused(bench: &Bench, arguments: &[&str], wanted: &str) {
    let before = stdout(&bench.run(["changes", "list"]));
    let output = bench.run(arguments);
    assert_eq!(output.status.code(), Some(2), "{}: {arguments:?}: {}", bench.who(), stderr(&output));
    assert!(stderr(&output).contains(wanted), "{}: {arguments:?}: {}", bench.who(), stderr(&output));
    assert_eq!(stdout(&output), "");
    assert_eq!(stdout(&bench.run(["changes", "list"])), before);
}

#[test]
fn with_several_waiting_runs_one_has_to_be_named() {
    for bench in benches() {
        let (one, two) = (park(&bench, "echo 1 > one"), park(&bench, "echo 2 > two"));
        for arguments in [&["changes", "accept"][..], &["changes", "reject"], &["changes", "accept", "--patch"]] {
            assert_refused(&bench, arguments, "2 runs wait for");
            let said = stderr(&bench.run(arguments));
            assert!(said.contains(&one) && said.contains(&two) && said.contains("echo 1 > one"), "{said}");
        }
        assert_refused(&bench, &["changes", "reject", "two"], "2 runs wait for");
        for arguments in [["changes", "show"], ["changes", "diff"]] {
            let output = bench.run(arguments);
            assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
            assert!(stdout(&output).contains("two") && !stdout(&output).contains("one"), "{}", stdout(&output));
            assert!(stderr(&output).contains(&one) && !stderr(&output).contains(&two), "{}", stderr(&output));
        }
        assert_eq!(bench.run(["changes", "reject", "--run", &two]).status.code(), Some(0));
        let shown = bench.run(["changes", "show"]);
        assert!(stdout(&shown).contains("A one") && stderr(&shown).is_empty(), "{}", stderr(&shown));
        assert_eq!(bench.run(["changes", "accept"]).status.code(), Some(0));
        assert!(bench.workspace.join("one").exists() && !bench.workspace.join("two").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_run_is_named_by_the_start_of_its_id_or_as_the_latest() {
    for bench in benches() {
        let (one, two) = (park(&bench, "echo 1 > one"), park(&bench, "echo 2 > two"));
        let same = one.bytes().zip(two.bytes()).take_while(|(left, right)| left == right).count();
        let (both, first) = (&one[..same.max(4)], &one[..=same.max(4)]);
        assert_refused(&bench, &["changes", "accept", "--run", both], "the ids of 2 runs begin with");
        let said = stderr(&bench.run(["changes", "accept", "--run", both]));
        assert!(said.contains(&one) && said.contains(&two) && said.contains("Write more of the id."), "{said}");
        for (start, wanted) in [("ffff", "begins with ffff"), ("01", "is not an id"), ("last", "is not an id")] {
            let other = bench.run(["changes", "accept", "--run", start]);
            assert!(!other.status.success() && stderr(&other).contains(wanted), "{start}: {}", stderr(&other));
        }
        let wrong = bench.run(["changes", "accept", "--run", "x"]);
        assert!(stderr(&wrong).contains("nexus changes accept --help shows"), "{}", stderr(&wrong));
        for action in ["show", "diff"] {
            let shown = bench.run(["changes", action, "--run", first]);
            assert!(stdout(&shown).contains("one") && !stdout(&shown).contains("two"), "{}", stderr(&shown));
        }
        let latest = bench.run(["changes", "accept", "--run", "latest"]);
        assert!(latest.status.success() && bench.workspace.join("two").exists(), "{}", stderr(&latest));
        assert!(!bench.workspace.join("one").exists());
        let three = park(&bench, "echo 3 > three");
        let rejected = bench.run(["changes", "reject", "--run", first]);
        assert!(rejected.status.success(), "{}", stderr(&rejected));
        let left = stdout(&bench.run(["changes", "list"]));
        assert!(left.contains(&three) && !left.contains(&one), "{left}");
        assert_eq!(bench.run(["changes", "recover", "--run", "latest"]).status.code(), Some(0));
        assert_eq!(bench.run(["changes", "reject", "--run", "latest"]).status.code(), Some(0));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_part_of_what_goes_as_a_whole_is_refused_by_name() {
    for bench in benches() {
        for name in ["d/keep", "d/junk", "t/inner", "r/file"] {
            bench.write(name, "precious\n");
        }
        park(&bench, "rm -r d; rm -r t; echo file > t; mv r r2; echo A > a");
        let mut cases =
            vec![("d/keep", "together with d, which was deleted"), ("t/inner", "together with t, which was replaced")];
        if bench.user.is_none() && is_root() {
            // An ordinary user's rename of a directory is a copy.
            cases.extend([
                ("r2/file", "together with r2, which was renamed"),
                ("r/file", "together with r2, which was renamed"),
            ]);
        }
        for (path, wanted) in cases {
            for action in ["reject", "accept"] {
                assert_refused(&bench, &["changes", action, path], wanted);
            }
        }
        assert_refused(&bench, &["changes", "reject", "a/inner"], "nothing that waits has the path");
        assert_refused(&bench, &["changes", "reject", "sub"], "nothing that waits has the path");
        let output = bench.run(["changes", "reject", "d"]);
        assert!(stdout(&output).starts_with("rejected 1 change\n"), "{}", stdout(&output));
        assert_refused(&bench, &["changes", "reject", "d"], "nothing that waits has the path");
        assert_eq!(bench.run(["changes", "accept"]).status.code(), Some(0));
        assert_eq!(fs::read_to_string(bench.workspace.join("d/keep")).unwrap(), "precious\n");
        assert_eq!(fs::read_to_string(bench.workspace.join("t")).unwrap(), "file\n");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_path_inside_a_directory_that_only_changed_is_refused() {
    for bench in benches() {
        bench.write("sub/kept", "k\n");
        park(&bench, "chmod 700 sub; echo x > other");
        assert_refused(&bench, &["changes", "reject", "sub/kept"], "nothing that waits has the path");
        assert_refused(&bench, &["changes", "accept", "sub/kept"], "nothing that waits has the path");
    }
}

#[test]
fn accepting_a_rejected_path_takes_the_reject_back() {
    for bench in benches() {
        park(&bench, "mkdir d; echo 1 > d/one; echo 2 > d/two; echo x > a");
        assert_eq!(bench.run(["changes", "reject", "a", "d"]).status.code(), Some(0));
        assert!(stdout(&bench.run(["changes", "list"])).starts_with("No changes"), "nothing waits any more");

        park(&bench, "mkdir d; echo 1 > d/one; echo 2 > d/two; echo x > a; echo y > b");
        assert!(stdout(&bench.run(["changes", "reject", "a", "d"])).starts_with("rejected 4 changes\n"));
        let output = bench.run(["changes", "accept", "d/one"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(stdout(&output).contains("d/one is not rejected any more\n"), "{}", stdout(&output));
        assert!(bench.workspace.join("d/one").exists() && !bench.workspace.join("d/two").exists());
        // The others are rejected still.
        let shown = stdout(&bench.run(["changes", "show"]));
        assert!(shown.ends_with("\nA b  2 B\n") && shown.lines().count() == 2, "{shown}");
        let output = bench.run(["changes", "accept", "a", "b"]);
        assert!(stdout(&output).contains("a is not rejected any more\n"), "{}", stdout(&output));
        assert!(bench.workspace.join("a").exists() && bench.workspace.join("b").exists());
        assert!(!bench.workspace.join("d/two").exists());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_patch_says_what_was_committed_and_asks_once_for_a_whole() {
    for bench in benches() {
        for name in ["d/junk", "d/keep", "d/sub/deep"] {
            bench.write(name, "x\n");
        }
        park(&bench, "rm -r d; echo A > a");
        let output = typed(&bench, &["changes", "accept", "--patch"], "n\nn\n");
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(stdout(&output), "2 changes still wait: nexus changes show\n", "{}", stderr(&output));
        assert_eq!(stderr(&output).matches("accept? [y,n,a,d,q]").count(), 2, "{}", stderr(&output));
        assert!(bench.workspace.join("d/keep").exists());
        let output = typed(&bench, &["changes", "accept", "--patch", "d"], "y\n");
        assert_eq!(stdout(&output), "accepted d\n1 change still waits: nexus changes show\n", "{}", stderr(&output));
        assert!(!bench.workspace.join("d").exists());
    }
}

#[test]
fn a_layer_that_was_being_removed_is_not_a_review() {
    for bench in benches() {
        let run = park(&bench, "echo 1 > one; echo 2 > two");
        // As after a kill in the middle of a reject.
        let layer = bench.state.join("layers").join(&run);
        fs::rename(layer.join("run.json"), layer.join("run.gone")).unwrap();
        fs::remove_file(layer.join("upper/one")).unwrap();
        assert!(stdout(&bench.run(["changes", "list"])).contains("[being thrown away]"));
        for action in ["show", "diff", "accept"] {
            let output = bench.run(["changes", action, "--run", &run]);
            assert_eq!(output.status.code(), Some(125), "{action}: {}", stderr(&output));
            assert!(stderr(&output).contains("were being thrown away"), "{}", stderr(&output));
        }
        assert!(!bench.workspace.join("two").exists());
        assert_eq!(bench.run(["changes", "reject", "--run", &run]).status.code(), Some(0));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// Parks a run of a directory `pk/app`, in which it edits a file and makes one, and returns its id.
fn park_below(bench: &Bench) -> String {
    bench.write("pk/app/f", "before\n");
    let mut command = bench.nexus(["run", "--changes", "review", "--shell", "echo after > f; echo made > n"]);
    assert!(command.current_dir(bench.workspace.join("pk/app")).status().unwrap().success());
    let listed = support::report(&bench.run(["changes", "list", "--json"]));
    listed[0]["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn what_waits_for_a_directory_that_is_gone_can_be_looked_at_copied_and_kept() {
    for (bench, is_replaced) in benches().into_iter().zip([false, true]).chain(benches().into_iter().zip([true, false]))
    {
        let run = park_below(&bench);
        fs::remove_dir_all(bench.workspace.join("pk")).unwrap();
        if is_replaced {
            bench.write("pk/app/other", "of the host\n");
        }
        let of_run = |words: &[&str]| bench.run(words.iter().copied().chain(["--run", &run]));
        let shown = of_run(&["changes", "show"]);
        assert!(stdout(&shown).ends_with("\nA f  6 B\nA n  5 B\n"), "{}: {}", bench.who(), stdout(&shown));
        assert!(stderr(&shown).contains("cannot take its changes"), "{}", stderr(&shown));
        assert_eq!(support::report(&of_run(&["changes", "show", "--json"]))["away"], true);
        let diff = stdout(&of_run(&["changes", "diff"]));
        assert!(diff.contains("+after\n") && diff.contains("+made\n"), "{diff}");
        let refused = of_run(&["changes", "accept"]);
        assert_eq!(refused.status.code(), Some(125));
        let why = if is_replaced { "it was moved or replaced since the run" } else { "it is not there any more" };
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
        // The command of the advice does what it says.
        let text = stderr(&refused);
        let (_, command) = text.split_once("path DIR (").unwrap();
        let target = bench.base.path().join("copied");
        fs::create_dir(&target).unwrap();
        bench.give(&target);
        let command = command.split_once("), and close").unwrap().0.replace("DIR", target.to_str().unwrap());
        assert!(bench.command("sh").args(["-c", &command]).status().unwrap().success(), "{command}");
        assert_eq!(fs::read_to_string(target.join("f")).unwrap(), "after\n");
        let rejected = of_run(&["changes", "reject"]);
        assert_eq!(rejected.status.code(), Some(0), "{}", stderr(&rejected));
        let text = stdout(&rejected);
        let kept = text.split_once("its files are in ").unwrap().1.split_once(". Nexus").unwrap().0;
        assert_eq!(fs::read_to_string(Path::new(kept).join("n")).unwrap(), "made\n", "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        let listed = stdout(&bench.run(["changes", "list"]));
        assert!(listed.contains("Files that an earlier command kept"), "{listed}");
    }
}

#[test]
fn a_commit_takes_no_directory_away_in_which_a_run_waits() {
    for bench in benches() {
        for script in ["mv pk/app app", "mv pk moved", "rm -r pk", "rm -r pk/app; echo x > pk/app"] {
            bench.write("pk/app/f", "before\n");
            let run = park_below(&bench);
            let output = bench.run(["run", "--changes", "commit", "--shell", script]);
            let context = format!("{}: {script}: {}", bench.who(), stderr(&output));
            assert!(stderr(&output).contains(&format!("the changes of the run {run} wait in pk/app")), "{context}");
            assert!(bench.workspace.join("pk/app/f").exists(), "{context}");
            let accepted = bench.run(["changes", "accept", "--run", &run]);
            assert_eq!(accepted.status.code(), Some(0), "{context}{}", stderr(&accepted));
            assert_eq!(fs::read_to_string(bench.workspace.join("pk/app/n")).unwrap(), "made\n", "{context}");
            // Nothing waits there any more, and the other run is one of an older state.
            let output = bench.run(["changes", "reject"]);
            assert_eq!(output.status.code(), Some(0), "{context}{}", stderr(&output));
            let output = bench.run(["run", "--changes", "commit", "--shell", "rm -rf pk app moved"]);
            assert_eq!(output.status.code(), Some(0), "{context}{}", stderr(&output));
            assert!(!bench.workspace.join("pk").exists(), "{context}");
        }
        // Who names the directory, or all that is protected, has seen it.
        let run = park_below(&bench);
        bench.run(["run", "--changes", "commit", "--shell", "rm -r pk"]);
        let waiting = support::report(&bench.run(["changes", "list", "--json"]));
        let other = waiting.as_array().unwrap().iter().find(|one| one["run_id"] != run.as_str()).unwrap();
        let output = bench.run(["changes", "accept", "--protected", "--run", other["run_id"].as_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.workspace.join("pk").exists(), "{}", bench.who());
    }
}
