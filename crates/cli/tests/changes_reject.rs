//! `nexus changes reject` of a commit that was killed half-way, and beside another command: no version of a file is
//! lost, whatever state the reject meets.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use support::{Bench, on_each_bench, stderr, stdout, wait_until};

const NAMES: [&str; 4] = ["a", "b", "c", "z"];
const SCRIPT: &str = "for f in a b c z; do echo run $f > $f.new; mv $f.new $f; done";

type Version = BTreeMap<PathBuf, String>;

/// The files below a directory that can be read as text.
fn files_of(directory: &Path) -> Version {
    let mut found = Version::new();
    let mut stack = vec![directory.to_owned()];
    while let Some(path) = stack.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                stack.push(entry.path());
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                found.insert(entry.path().strip_prefix(directory).unwrap().to_owned(), text);
            }
        }
    }
    found
}

fn version(by: &str) -> Version {
    NAMES.iter().map(|name| ((*name).into(), format!("{by} {name}\n"))).collect()
}

fn files(bench: &Bench) {
    for name in NAMES {
        bench.write(name, format!("old {name}\n"));
    }
}

fn parked(bench: &Bench, script: &str) -> String {
    let (report, code) = bench.json(["--changes", "review", "--shell", script]);
    assert_eq!(code, 0, "{report}");
    report["run_id"].as_str().unwrap().to_owned()
}

/// `nexus` under strace(1), which does something at its calls.
fn traced(bench: &Bench, inject: &str, arguments: &[&str]) -> Command {
    let call = inject.split(':').next().unwrap();
    let mut traced = bench.command("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &format!("inject={inject}")]);
    traced.arg(bench.program()).args(arguments).current_dir("/");
    traced
}

fn killed_at(bench: &Bench, call: &str, nth: usize, arguments: &[&str]) -> bool {
    !traced(bench, &format!("{call}:signal=KILL:when={nth}"), arguments).output().unwrap().status.success()
}

fn layer(bench: &Bench, run: &str) -> PathBuf {
    bench.state.join("layers").join(run)
}

/// Kills an accept at later and later moves until the workspace stands half-way. Returns the run and what is there.
fn half_accepted(bench: &Bench) -> (String, Version) {
    // The moment is the same each time; only the first search of a thread looks for it.
    thread_local!(static MOMENT: std::cell::Cell<usize> = const { std::cell::Cell::new(1) });
    let known = MOMENT.get();
    for nth in (known..20).chain(1..known) {
        files(bench);
        let run = parked(bench, SCRIPT);
        let was_killed = killed_at(bench, "renameat2", nth, &["changes", "accept", "--run", &run]);
        let found = files_of(&bench.workspace);
        if was_killed
            && layer(bench, &run).join("journal").exists()
            && ![version("old"), version("run")].contains(&found)
        {
            MOMENT.set(nth);
            return (run, found);
        }
        assert_eq!(nexus(bench, &["changes", "recover"]).status.code(), Some(0));
        nexus(bench, &["changes", "reject", "--run", &run]);
    }
    panic!("the accept never stood half-way");
}

fn nexus(bench: &Bench, arguments: &[&str]) -> Output {
    bench.nexus(arguments).current_dir("/").output().unwrap()
}

/// Every old and every new version is somewhere.
fn nothing_is_lost(bench: &Bench, what: &str) {
    let all: Vec<String> = files_of(bench.base.path()).into_values().collect();
    for by in ["old", "run"] {
        for text in version(by).values() {
            assert!(all.contains(text), "{what}: {text:?} is gone");
        }
    }
}

/// Answers are lines, and name no layer that is gone.
fn is_said_well(bench: &Bench, output: &Output, run: &str) {
    let told = stdout(output) + &stderr(output);
    assert!(!told.contains("\\n"), "{told}");
    assert!(layer(bench, run).exists() || !told.contains("nexus changes show --run"), "{told}");
}

#[test]
fn a_reject_keeps_edits_in_a_directory_that_arrived() {
    on_each_bench(|bench| {
        for edit in ["chmod 750 src", "mv src s; mv s src", "chmod -R g+w src", "true"] {
            fs::remove_dir_all(bench.workspace.join("src")).ok();
            bench.write("z", "old z\n");
            let run = parked(&bench, "mkdir src; echo '// generated' >src/main.c; echo new >z");
            // Before the second entry is exchanged.
            assert!(killed_at(&bench, "renameat2", 2, &["changes", "accept", "--run", &run]));
            assert!(bench.workspace.join("src").exists() && layer(&bench, &run).join("journal").exists());
            let work = format!("echo 'my hour of work' >> src/main.c; {edit}");
            assert!(bench.command("sh").args(["-ec", &work]).status().unwrap().success());
            let output = nexus(&bench, &["changes", "reject", "--run", &run]);
            assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
            let text = fs::read_to_string(bench.workspace.join("src/main.c")).unwrap();
            assert_eq!(text, "// generated\nmy hour of work\n", "{}: {edit}", bench.who());
            assert!(stdout(&output).contains("but for what changed in it since:\n  src is left as it is\n"));
            assert_eq!(fs::read_to_string(bench.workspace.join("z")).unwrap(), "old z\n");
            is_said_well(&bench, &output, &run);
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    });
}

/// A program has a directory that arrived as its working directory, and saves in it at each moment of a reject.
#[test]
fn a_reject_removes_no_directory_that_a_program_works_in() {
    on_each_bench(|bench| {
        for is_killed in [false, true] {
            fs::remove_dir_all(bench.workspace.join("src")).ok();
            bench.write("z", "old z\n");
            let run = parked(&bench, "mkdir src; echo '// generated' >src/main.c; echo new >z");
            assert!(killed_at(&bench, "renameat2", 2, &["changes", "accept", "--run", &run]));
            let src = fs::File::open(bench.workspace.join("src")).unwrap();
            let save = |name: &str| fs::write(format!("/proc/self/fd/{}/{name}", src.as_raw_fd()), name).unwrap();
            let reject = ["changes", "reject", "--run", &run];
            if is_killed {
                // After the directory has left the workspace.
                assert!(killed_at(&bench, "syncfs", 1, &reject));
                assert!(!bench.workspace.join("src").exists() && layer(&bench, &run).join("journal").exists());
                save("after the kill");
            }
            let output = nexus(&bench, &reject);
            let told = stdout(&output) + &stderr(&output);
            assert_eq!(output.status.code(), Some(0), "{}: {told}", bench.who());
            save("after the reject");
            if is_killed {
                // What was saved meanwhile brings the directory home.
                assert!(told.contains("but for what changed in it since:\n  src is left as it is\n"), "{told}");
                let found = files_of(&bench.workspace.join("src"));
                for name in ["main.c", "after the kill", "after the reject"] {
                    assert!(found.contains_key(Path::new(name)), "{}: {name} is gone: {told}", bench.who());
                }
                continue;
            }
            let kept = bench.state.join("layers/.kept").join(&run).join("layer");
            assert!(told.contains(&format!("Files of the run stay in {}", kept.display())), "{told}");
            assert!(told.contains("a program may still have been writing to them"), "{told}");
            assert!(!bench.workspace.join("src").exists() && !layer(&bench, &run).exists());
            // No later command removes it.
            for arguments in [&["changes", "list"][..], &["changes", "recover"], &reject] {
                nexus(&bench, arguments);
            }
            parked(&bench, "true");
            let found = files_of(&kept.join("upper/src"));
            assert!(found.contains_key(Path::new("main.c")) && found.contains_key(Path::new("after the reject")));
        }
    });
}

/// The accept dies half-way while the reject stands between its look at the runs and its decision.
#[test]
fn a_reject_sees_a_commit_that_was_decided_after_its_look() {
    on_each_bench(|bench| {
        let mut met = 0;
        for (call, nth) in [("rename", 1), ("flock", 1), ("flock", 2), ("flock", 3), ("flock", 4), ("unlink", 1)] {
            files(&bench);
            let run = parked(&bench, SCRIPT);
            let delay = format!("{call}:delay_enter=1000000:when={nth}");
            let reject = traced(&bench, &delay, &["changes", "reject", "--run", &run])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            killed_at(&bench, "renameat2", 3, &["changes", "accept", "--run", &run]);
            let is_half = layer(&bench, &run).join("journal").exists();
            let output = reject.wait_with_output().unwrap();
            met += usize::from(is_half);
            let what = format!("{}: {call} {nth}: {}{}", bench.who(), stdout(&output), stderr(&output));
            assert_eq!(nexus(&bench, &["changes", "recover"]).status.code(), Some(0), "{what}");
            let found = files_of(&bench.workspace);
            assert!(found == version("old") || found == version("run"), "{what}: {found:?}");
            is_said_well(&bench, &output, &run);
            nexus(&bench, &["changes", "reject", "--run", &run]);
            assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
        }
        assert!(met > 0, "{}: the accept never came between", bench.who());
    });
}

#[test]
fn an_accept_beside_a_reject_does_one_or_the_other() {
    on_each_bench(|bench| {
        let mut accepted = 0;
        for pair in 0..25 {
            files(&bench);
            // Something protected waits on after an accept, so that there is a layer.
            let is_rest = pair % 3 == 0;
            let protected = if is_rest { "; mkdir .vscode; echo > .vscode/tasks.json" } else { "" };
            let run = parked(&bench, &format!("{SCRIPT}{protected}"));
            // Every other accept has the layer for a while.
            let decide = |what: &str| {
                let arguments = ["changes", what, "--run", &run];
                let mut command = if what == "accept" && pair % 2 == 1 {
                    traced(&bench, "renameat2:delay_enter=200000:when=1", &arguments)
                } else {
                    bench.nexus(arguments)
                };
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
            };
            let (accept, reject) = if pair % 4 < 2 {
                (decide("accept"), decide("reject"))
            } else {
                let reject = decide("reject");
                (decide("accept"), reject)
            };
            let (accept, reject) = (accept.wait_with_output().unwrap(), reject.wait_with_output().unwrap());
            let what = format!("{} {pair}: {}{}", bench.who(), stderr(&accept), stderr(&reject));
            let done = (accept.status.success(), reject.status.success());
            accepted += usize::from(done.0);
            let found = files_of(&bench.workspace);
            assert_eq!(found, version(if done.0 { "run" } else { "old" }), "{what}");
            // The rest of an accept may be rejected; what was accepted as a whole may not.
            assert!(done != (true, true) || is_rest, "{what}: both say that they did it");
            let listed = nexus(&bench, &["changes", "list"]);
            assert!(!stdout(&listed).contains("being thrown away"), "{what}: {}", stdout(&listed));
            if !done.1 && (is_rest || !done.0) {
                assert_eq!(nexus(&bench, &["changes", "reject", "--run", &run]).status.code(), Some(0), "{what}");
            }
            assert_eq!(stdout(&nexus(&bench, &["changes", "list"])), "No changes wait for a decision.\n", "{what}");
            assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
        }
        assert!(accepted > 0 && accepted < 25, "{}: {accepted} of 25 were accepted", bench.who());
    });
}

#[test]
fn a_reject_without_the_directory_changes_nothing() {
    on_each_bench(|bench| {
        let (run, mixed) = half_accepted(&bench);
        let away = bench.base.path().join("away");
        fs::rename(&bench.workspace, &away).unwrap();
        let before = files_of(&layer(&bench, &run));
        for replaced in [false, true] {
            if replaced {
                fs::create_dir(&bench.workspace).unwrap();
            }
            let output = nexus(&bench, &["changes", "reject", "--run", &run]);
            assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stdout(&output));
            for part in [bench.workspace.to_str().unwrap(), "Put the directory back", "--set-aside"] {
                assert!(stderr(&output).contains(part), "{}", stderr(&output));
            }
            let found = (files_of(&layer(&bench, &run)), files_of(&away));
            assert_eq!(found, (before.clone(), mixed.clone()), "{}", bench.who());
        }
        fs::remove_dir(&bench.workspace).unwrap();
        fs::rename(&away, &bench.workspace).unwrap();
        let output = nexus(&bench, &["changes", "reject", "--set-aside", "--run", &run]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(files_of(&bench.workspace), version("old"), "it can be taken back");
        assert!(bench.leftovers().is_empty() && !bench.state.join("kept").exists());
    });
}

fn is_kept(bench: &Bench, run: &str, mixed: &Version, output: &Output, what: &str) {
    assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(output));
    let kept = bench.state.join("kept").join(run);
    assert!(stdout(output).contains(kept.to_str().unwrap()), "{what}: {}", stdout(output));
    is_said_well(bench, output, run);
    nothing_is_lost(bench, what);
    assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
    assert!(stdout(&nexus(bench, &["changes", "list"])).starts_with("No changes wait for a decision.\n"), "{what}");
    let next = bench.run(["run", "--", "true"]);
    assert_eq!((next.status.code(), stderr(&next).as_str()), (Some(0), ""), "{what}");
    assert_eq!(files_of(&bench.workspace), *mixed, "{what}: nobody finishes it any more");
    nothing_is_lost(bench, what);
    fs::remove_dir_all(bench.state.join("kept")).unwrap();
}

#[test]
fn what_cannot_be_taken_back_is_set_aside_in_full() {
    on_each_bench(|bench| {
        let away = bench.base.path().join("away");
        // Wherever that reject is killed, the layer is decided or aside.
        for (call, nth) in [("none", 0), ("renameat2", 1), ("fsync", 1), ("fsync", 2), ("unlink", 1)] {
            let (run, mixed) = half_accepted(&bench);
            fs::rename(&bench.workspace, &away).unwrap();
            let arguments = ["changes", "reject", "--set-aside", "--run", &run];
            let what = format!("{}: killed at {call} {nth}", bench.who());
            if nth > 0 {
                killed_at(&bench, call, nth, &arguments);
                nothing_is_lost(&bench, &what);
            }
            if layer(&bench, &run).exists() {
                assert!(layer(&bench, &run).join("journal").exists(), "{what}");
                let output = nexus(&bench, &arguments);
                fs::rename(&away, &bench.workspace).unwrap();
                is_kept(&bench, &run, &mixed, &output, &what);
            } else {
                fs::rename(&away, &bench.workspace).unwrap();
                // The killed command did not report it.
                let kept = bench.state.join("kept").join(&run);
                let next = bench.run(["run", "--", "true"]);
                assert_eq!(next.status.code(), Some(0), "{what}: {}", stderr(&next));
                assert!(stderr(&next).contains(kept.to_str().unwrap()), "{what}: {}", stderr(&next));
                assert_eq!(stderr(&bench.run(["changes", "list"])), "", "{what}");
                assert_eq!(files_of(&bench.workspace), mixed, "{what}");
                nothing_is_lost(&bench, &what);
                assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
                fs::remove_dir_all(bench.state.join("kept")).unwrap();
            }
        }
    });
}

#[test]
fn a_commit_whose_journal_says_nothing_is_set_aside_in_full() {
    on_each_bench(|bench| {
        for case in ["cut", "empty", "version", "run", "garbage", "directory", "gone too", "no note"] {
            let (run, mixed) = half_accepted(&bench);
            let (journal, away) = (layer(&bench, &run).join("journal"), bench.base.path().join("away"));
            let text = fs::read_to_string(&journal).unwrap();
            match case {
                "cut" | "gone too" => fs::write(&journal, &text[..text.len() / 2]).unwrap(),
                "empty" => fs::write(&journal, "").unwrap(),
                "version" => fs::write(&journal, text.replacen("\"version\":2", "\"version\":3", 1)).unwrap(),
                "run" => fs::write(&journal, text.replacen(&run, &run.replace('0', "1"), 1)).unwrap(),
                "garbage" => fs::write(&journal, [0xff; 100]).unwrap(),
                "directory" => {
                    fs::remove_file(&journal).unwrap();
                    fs::create_dir(&journal).unwrap();
                }
                "no note" => {
                    fs::write(&journal, "").unwrap();
                    fs::remove_file(layer(&bench, &run).join("run.json")).unwrap();
                }
                other => panic!("{other}"),
            }
            if case == "gone too" {
                fs::rename(&bench.workspace, &away).unwrap();
            }
            let output = nexus(&bench, &["changes", "reject", "--run", &run]);
            if case == "gone too" {
                fs::rename(&away, &bench.workspace).unwrap();
            }
            is_kept(&bench, &run, &mixed, &output, &format!("{}: {case}", bench.who()));
        }
    });
}

/// The layer is on another file system, so that the staging directory lies in the workspace.
#[test]
fn a_kept_staging_directory_is_named_after_each_kill() {
    on_each_bench(|mut bench| {
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        bench.state = elsewhere.path().to_owned();
        bench.give(&bench.state);
        let mut named = 0;
        for nth in 1..60 {
            for name in ["n", "z"] {
                bench.write(name, "old\n");
            }
            let run = parked(&bench, "mkdir d; echo new >d/f; echo new >n; echo new >z");
            assert!(killed_at(&bench, "renameat2", 3, &["changes", "accept", "--run", &run]));
            // A program that has the staging directory for its working directory saves a file there.
            let staging = bench.workspace.join(format!(".nexus-tmp-{run}"));
            fs::write(staging.join("notes"), "an hour of work").unwrap();
            let reject = ["changes", "reject", "--run", &run];
            let first = traced(&bench, &format!("unlinkat:signal=KILL:when={nth}"), &reject).output().unwrap();
            let is_killed = !first.status.success();
            let kept: Vec<_> = fs::read_dir(&bench.workspace).unwrap().map(|entry| entry.unwrap().path()).collect();
            let kept = kept.iter().find(|path| path.to_string_lossy().contains("/.nexus-kept-"));
            let second = nexus(&bench, &reject);
            let told = [&first, &second].map(|output| stdout(output) + &stderr(output)).concat();
            if let Some(kept) = kept {
                named += 1;
                let name = kept.file_name().unwrap().to_str().unwrap();
                assert!(told.contains(name), "{}: kill {nth}: {told}", bench.who());
                assert!(!told.contains("since the decision"), "{}: kill {nth}: {told}", bench.who());
                assert!(told.contains("a program may still have been writing"), "{}: kill {nth}: {told}", bench.who());
            }
            for entry in fs::read_dir(&bench.workspace).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.to_string_lossy().contains("/.nexus-kept-") {
                    assert_eq!(fs::read_to_string(entry.join("notes")).unwrap(), "an hour of work");
                    fs::remove_dir_all(entry).unwrap();
                }
            }
            if !is_killed {
                break;
            }
        }
        assert!(named > 2, "{}: only {named} kills", bench.who());
    });
}

/// A commit whose journal can be read is taken back although the run's own note is gone.
#[test]
fn a_commit_of_a_run_without_a_note_is_taken_back() {
    on_each_bench(|bench| {
        let (run, _) = half_accepted(&bench);
        fs::remove_file(layer(&bench, &run).join("run.json")).unwrap();
        let output = nexus(&bench, &["changes", "reject", "--run", &run]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(files_of(&bench.workspace), version("old"), "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    });
}

#[test]
fn what_a_commit_kept_back_is_reported_in_lines() {
    on_each_bench(|bench| {
        files(&bench);
        let run = parked(&bench, SCRIPT);
        let mut accept = traced(&bench, "renameat2:delay_enter=700000:when=1+", &["changes", "accept", "--run", &run]);
        let accept = accept.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let journal = layer(&bench, &run).join("journal");
        wait_until("a decision", Duration::from_secs(20), || journal.exists());
        // The last of the paths to be exchanged.
        bench.write("z", "typed by a person\n");
        let output = accept.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
        assert!(stderr(&output).contains("not everything was accepted"), "{}", stderr(&output));
        assert!(stderr(&output).lines().any(|line| line.contains("accepted M a ")), "{}", stderr(&output));
        is_said_well(&bench, &output, &run);
        assert_eq!(fs::read_to_string(bench.workspace.join("z")).unwrap(), "typed by a person\n");
    });
}
