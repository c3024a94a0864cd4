//! A command of `nexus changes` names each version that it moved beside a path; where it is killed, the next one does.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use support::{Bench, on_each_bench, stderr, stdout};

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

fn killed_at(bench: &Bench, call: &str, nth: usize, arguments: &[&str]) -> Output {
    traced(bench, &format!("{call}:signal=KILL:when={nth}"), arguments).output().unwrap()
}

fn nexus(bench: &Bench, arguments: &[&str]) -> Output {
    bench.nexus(arguments).current_dir("/").output().unwrap()
}

fn told(output: &Output) -> String {
    stdout(output) + &stderr(output)
}

/// The names in the workspace that say that they are beside a path.
fn beside(bench: &Bench) -> Vec<String> {
    let names = fs::read_dir(&bench.workspace).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".nexus-conflict-")).collect()
}

fn removed(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

/// A commit that was killed when all of it was applied, while a program has a directory that it deletes for its working
/// directory. Returns the run.
fn applied(bench: &Bench) -> (String, fs::File) {
    for nth in 1..40 {
        for name in ["d/1", "2"] {
            bench.write(name, "old\n");
        }
        let works_in = fs::File::open(bench.workspace.join("d")).unwrap();
        let run = parked(bench, "rm -r d; echo run > 2");
        killed_at(bench, "unlinkat", nth, &["changes", "accept", "--run", &run]);
        let layer: PathBuf = bench.state.join("layers").join(&run);
        if layer.join("journal.done").exists() && layer.join("outcome").exists() {
            return (run, works_in);
        }
        nexus(bench, &["changes", "recover"]);
        nexus(bench, &["changes", "reject", "--run", &run]);
    }
    panic!("no kill came after the commit was applied");
}

fn saved_in(directory: &fs::File) {
    fs::write(format!("/proc/self/fd/{}/saved", directory.as_raw_fd()), "an hour of work").unwrap();
}

#[test]
fn a_reject_of_an_applied_commit_tells_what_stays() {
    on_each_bench(|bench| {
        let (run, works_in) = applied(&bench);
        saved_in(&works_in);
        let listed = stderr(&nexus(&bench, &["changes", "list"]));
        assert!(listed.contains("after all of it was applied"), "{}: {listed}", bench.who());
        assert!(!listed.contains("takes it back"), "{}: {listed}", bench.who());
        let output = nexus(&bench, &["changes", "reject", "--run", &run]);
        assert_eq!(output.status.code(), Some(125), "{}", told(&output));
        let kept = beside(&bench);
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(told(&output).contains(&kept[0]), "{}: {}", bench.who(), told(&output));
        let text = fs::read_to_string(bench.workspace.join(&kept[0]).join("saved")).unwrap();
        assert_eq!(text, "an hour of work");
        // The record went with the answer.
        assert_eq!(stderr(&nexus(&bench, &["changes", "list"])), "");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    });
}

#[test]
fn a_record_that_cannot_be_removed_hides_no_answer() {
    on_each_bench(|bench| {
        let (_, works_in) = applied(&bench);
        saved_in(&works_in);
        let output = traced(&bench, "unlink:error=EACCES:when=1+", &["changes", "recover"]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", told(&output));
        let kept = beside(&bench);
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert!(told(&output).contains(&kept[0]), "{}: {}", bench.who(), told(&output));
    });
}

#[test]
fn a_killed_reject_or_the_next_command_names_what_is_beside() {
    on_each_bench(|bench| {
        let mut named = 0;
        for call in ["unlinkat", "fsync", "renameat"] {
            for nth in 1..60 {
                for name in ["1", "2", "3"] {
                    bench.write(name, "old\n");
                }
                let run = parked(&bench, "for f in 1 2 3; do echo run > $f; done");
                killed_at(&bench, "renameat2", 2, &["changes", "accept", "--run", &run]);
                // A person goes on with what arrived.
                for name in ["1", "2", "3"] {
                    let path = bench.workspace.join(name);
                    if fs::read_to_string(&path).unwrap() == "run\n" {
                        fs::write(&path, "typed by a person\n").unwrap();
                    }
                }
                let reject = ["changes", "reject", "--run", &run];
                let first = killed_at(&bench, call, nth, &reject);
                let others: [&[&str]; 3] = [&["changes", "show", "--run", &run], &["changes", "list"], &reject];
                let text: String = others.iter().map(|arguments| told(&nexus(&bench, arguments))).collect();
                let text = told(&first) + &text;
                for name in beside(&bench) {
                    named += 1;
                    assert!(text.contains(&name), "{}: {call} {nth}: {name}: {text}", bench.who());
                    removed(&bench.workspace.join(name));
                }
                assert!(bench.leftovers().is_empty(), "{call} {nth}: {:?}", bench.leftovers());
                if first.status.success() {
                    break;
                }
            }
        }
        assert!(named > 10, "{}: only {named} kills", bench.who());
    });
}

/// Kills a command at each call of a kind until it ends without a kill, each time on a new run. `check` gets the run, what both
/// commands said, and whether the first was killed.
fn each_kill(
    bench: &Bench,
    prepare: &dyn Fn() -> String,
    action: &str,
    then: &[&[&str]],
    check: &dyn Fn(&str, &str, &str),
) {
    for call in ["renameat2", "unlinkat", "unlink", "fsync", "write"] {
        for nth in 1..80 {
            let run = prepare();
            let first = killed_at(bench, call, nth, &["changes", action, "--run", &run]);
            let text = told(&first) + &then.iter().map(|one| told(&nexus(bench, one))).collect::<String>();
            check(&run, &format!("{} {action} {call} {nth}", bench.who()), &text);
            nexus(bench, &["changes", "recover"]);
            nexus(bench, &["changes", "reject", "--run", &run]);
            if first.status.code().is_some() {
                break;
            }
        }
    }
}

#[test]
fn what_a_killed_reject_keeps_is_named_by_it_or_the_next() {
    on_each_bench(|bench| {
        let prepare = || {
            bench.write("a", "text of a\n");
            let run = parked(&bench, "mv a b");
            let output =
                nexus(&bench, &["changes", "accept", "--run", &run, bench.workspace.join("a").to_str().unwrap()]);
            assert!(output.status.success(), "{}", told(&output));
            run
        };
        each_kill(&bench, &prepare, "reject", &[&["changes", "list"]], &|run, what, text| {
            let kept = bench.state.join("layers/.kept").join(run);
            if kept.join("layer").exists() {
                // Both the path and the run are said, however far the first came.
                assert!(text.contains(kept.to_str().unwrap()), "{what}: {text}");
                removed(&kept);
            } else {
                assert!(bench.state.join("layers").join(run).join("upper/b").exists(), "{what}: {text}");
            }
        });
    });
}

#[test]
fn what_a_killed_accept_did_is_said_by_it_or_the_next() {
    on_each_bench(|bench| {
        let prepare = || {
            bench.write("1", "old\n");
            parked(&bench, "echo run > 1")
        };
        each_kill(&bench, &prepare, "accept", &[&["changes", "list"]], &|run, what, text| {
            if fs::read_to_string(bench.workspace.join("1")).unwrap() == "run\n" {
                let is_said = text.contains("accepted M 1") || (text.contains(run) && text.contains("accept"));
                let is_named = text.contains(run) && text.contains("was interrupted");
                assert!(is_said || is_named, "{what}: {text}");
            }
        });
    });
}

#[test]
fn what_commands_kept_is_listed_as_long_as_it_is_there() {
    on_each_bench(|bench| {
        bench.write("a", "text of a\n");
        let run = parked(&bench, "mv a b");
        let a = bench.workspace.join("a");
        assert!(nexus(&bench, &["changes", "accept", "--run", &run, a.to_str().unwrap()]).status.success());
        assert!(nexus(&bench, &["changes", "reject", "--run", &run]).status.success());
        let (kept, aside) = (bench.state.join("layers/.kept").join(&run).join("layer"), bench.state.join("kept/x"));
        fs::create_dir_all(&aside).unwrap();
        for _ in 0..2 {
            let text = stdout(&nexus(&bench, &["changes", "list"]));
            for path in [&kept, &aside] {
                assert_eq!(text.matches(path.to_str().unwrap()).count(), 1, "{}: {text}", bench.who());
            }
        }
        removed(&kept);
        removed(&aside);
        let text = stdout(&nexus(&bench, &["changes", "list"]));
        assert_eq!(text, "No changes wait for a decision.\n", "{}", bench.who());
    });
}
