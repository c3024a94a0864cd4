//! A commit whose `nexus` was killed half-way (feature `inject`): only a command that may change the directory ends it.

#![cfg(feature = "inject")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use support::{Bench, benches, stderr, stdout};

const NAMES: [&str; 4] = ["a", "b", "c", "z"];
const SCRIPT: &str = "for f in a b c z; do echo run > $f.new; mv $f.new $f; done; echo x > added";

type Version = BTreeMap<PathBuf, String>;

fn version(directory: &Path) -> Version {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().into(), fs::read_to_string(&path).unwrap())).collect()
}

fn files(bench: &Bench) {
    for name in NAMES {
        bench.write(name, "old\n");
    }
    fs::remove_file(bench.workspace.join("added")).ok();
}

fn new_version() -> Version {
    let mut new: Version = NAMES.iter().map(|name| ((*name).into(), "run\n".to_owned())).collect();
    new.insert("added".into(), "x\n".to_owned());
    new
}

/// Reports whether this is a mix of the old version and the new one.
fn is_mixed(found: &Version) -> bool {
    let count =
        |text: &str| NAMES.iter().filter(|name| found.get(Path::new(name)).is_some_and(|it| it == text)).count();
    count("run\n") > 0 && count("old\n") > 0
}

/// Kills a run at later and later actions until its commit stands half-way. Returns its id, what is in the
/// workspace, and the number of the action.
fn half_applied_at(bench: &Bench) -> (String, Version, usize) {
    for nth in 1..500 {
        files(bench);
        let mut command = bench.nexus(["run", "--changes", "commit", "--shell", SCRIPT]);
        let output = command.env("NEXUS_INJECT", format!("abort:{nth}")).output().unwrap();
        assert_ne!(output.status.code(), Some(0), "the commit ended before it stood half-way");
        let found = version(&bench.workspace);
        let layer = fs::read_dir(bench.state.join("layers")).unwrap().next();
        if let Some(layer) = layer.map(|layer| layer.unwrap().path())
            && layer.join("journal").exists()
            && is_mixed(&found)
        {
            return (layer.file_name().unwrap().to_str().unwrap().to_owned(), found, nth);
        }
        let ended = bench.run(["changes", "recover"]);
        assert!(ended.status.success(), "{}", stderr(&ended));
        for row in support::report(&bench.run(["changes", "list", "--json"])).as_array().unwrap() {
            let run = row["run_id"].as_str().unwrap();
            assert_eq!(bench.run(["changes", "reject", "--run", run]).status.code(), Some(0));
        }
    }
    panic!("the commit never stood half-way");
}

fn half_applied(bench: &Bench) -> (String, Version) {
    let (run, found, _) = half_applied_at(bench);
    (run, found)
}

#[test]
fn looking_at_changes_never_changes_a_workspace() {
    for bench in benches() {
        let (run, mixed) = half_applied(&bench);
        for arguments in [&["list"][..], &["list", "--json"], &["show"], &["diff"], &["show", "--run", &run]] {
            let output = bench.nexus(["changes"]).args(arguments).output().unwrap();
            assert_eq!(output.status.success(), arguments[0] == "list", "{arguments:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(&format!("nexus changes recover --run {run}")), "{}", stderr(&output));
            assert!(stderr(&output).contains(bench.workspace.to_str().unwrap()), "{}", stderr(&output));
            assert_eq!(version(&bench.workspace), mixed, "{}: {arguments:?}", bench.who());
        }
        assert!(bench.run(["ps"]).status.success());
        assert_eq!(version(&bench.workspace), mixed, "{}: ps", bench.who());
        assert!(stdout(&bench.run(["changes", "list"])).contains("[commit interrupted]"));
        let output = bench.run(["changes", "recover", "--run", &run]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(stdout(&output).contains("is finished now"), "{}", stdout(&output));
        assert_eq!(version(&bench.workspace), new_version());
        assert_eq!(stdout(&bench.run(["changes", "recover"])), "No commit was interrupted.\n");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_run_elsewhere_goes_on_and_one_in_the_directory_finishes_it() {
    for bench in benches() {
        let (run, mixed) = half_applied(&bench);
        let elsewhere = bench.base.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        bench.give(&elsewhere);
        let output = bench.nexus(["run", "--", "true"]).current_dir(&elsewhere).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains(&run), "{}", stderr(&output));
        assert_eq!(version(&bench.workspace), mixed, "{}", bench.who());
        let output = bench.run(["run", "--shell", "cat a b c z"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(stdout(&output), "run\nrun\nrun\nrun\n", "the command saw a mix");
        assert!(stderr(&output).contains("is finished now"), "{}", stderr(&output));
        assert_eq!(version(&bench.workspace), new_version());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn an_accept_of_an_interrupted_commit_goes_on() {
    for bench in benches() {
        let (run, mixed) = half_applied(&bench);
        let output = bench.run(["changes", "accept", "--run", &run, "a"]);
        assert_eq!(output.status.code(), Some(2), "only as a whole: {}", stderr(&output));
        assert_eq!(version(&bench.workspace), mixed);
        let output = bench.run(["changes", "accept", "--run", &run]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(version(&bench.workspace), new_version());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_commit_that_was_being_taken_back_is_not_accepted() {
    for bench in benches() {
        let (run, _) = half_applied(&bench);
        let program = bench.nexus([] as [&str; 0]).get_program().to_owned();
        let mut reject = bench.command("strace");
        reject.args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=renameat2",
            "-e",
            "inject=renameat2:signal=KILL:when=1",
        ]);
        reject.arg(program).args(["changes", "reject", "--run", &run]);
        assert!(!reject.output().unwrap().status.success());
        let listed = stderr(&bench.run(["changes", "list"]));
        assert!(listed.contains("while it was being taken back") && !listed.contains("finishes it"), "{listed}");
        let shown = stderr(&bench.run(["changes", "show", "--run", &run]));
        assert!(shown.contains("goes on with taking it back"), "{shown}");
        let output = bench.run(["changes", "accept", "--run", &run]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stdout(&output));
        assert!(stderr(&output).contains("nothing was accepted"), "{}", stderr(&output));
        let found = version(&bench.workspace);
        assert!(NAMES.iter().all(|name| found[Path::new(name)] == "old\n"), "{}: {found:?}", bench.who());
        // What waits is another decision.
        assert_eq!(bench.run(["changes", "accept", "--run", &run]).status.code(), Some(0));
        assert_eq!(version(&bench.workspace), new_version());
    }
}

/// Signals the process that strace(1) runs.
fn interrupt(tracer: u32) {
    let children = fs::read_to_string(format!("/proc/{tracer}/task/{tracer}/children")).unwrap();
    let child = rustix::process::Pid::from_raw(children.split_whitespace().next().unwrap().parse().unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::INT).unwrap();
}

#[test]
fn an_interrupt_ends_no_decision_in_the_middle() {
    for bench in benches() {
        for action in ["reject", "recover"] {
            let (run, _) = half_applied(&bench);
            let program = bench.nexus([] as [&str; 0]).get_program().to_owned();
            let mut decision = bench.command("strace");
            decision.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2"]);
            decision.args(["-e", "inject=renameat2:delay_enter=400000:when=1+"]).arg(program);
            decision.args(["changes", action, "--run", &run]).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = decision.spawn().unwrap();
            let before = version(&bench.workspace);
            let what = format!("{}: a {action} on its way", bench.who());
            support::wait_until(&what, std::time::Duration::from_secs(20), || version(&bench.workspace) != before);
            interrupt(child.id());
            interrupt(child.id());
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{what}: {}", stderr(&output));
            let found = version(&bench.workspace);
            let is_old = NAMES.iter().all(|name| found[Path::new(name)] == "old\n");
            assert!(if action == "reject" { is_old } else { found == new_version() }, "{what}: {found:?}");
        }
    }
}

#[test]
fn a_reject_of_an_interrupted_commit_takes_it_back_or_nothing() {
    for bench in benches() {
        let (run, mixed) = half_applied(&bench);
        let output = bench.run(["changes", "reject", "--run", &run]);
        let found = version(&bench.workspace);
        if output.status.success() {
            assert!(NAMES.iter().all(|name| found[Path::new(name)] == "old\n"), "{}: {found:?}", bench.who());
            assert_eq!(found.len(), NAMES.len(), "{found:?}");
        } else {
            // Where replaced files were not kept, it says so and leaves everything as it was.
            assert!(stderr(&output).contains("cannot be taken back"), "{}", stderr(&output));
            assert_eq!(found, mixed, "{}", bench.who());
            assert_eq!(bench.run(["changes", "recover", "--run", &run]).status.code(), Some(0));
            assert_eq!(version(&bench.workspace), new_version());
        }
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn the_rest_of_a_commit_whose_directory_is_gone_stays_until_a_reject() {
    for bench in benches() {
        let (run, _) = half_applied(&bench);
        let away = bench.base.path().join("away");
        fs::rename(&bench.workspace, &away).unwrap();
        let nexus = |arguments: &[&str]| bench.nexus(arguments).current_dir("/").output().unwrap();
        for arguments in [&["changes", "list"][..], &["changes", "recover"], &["changes", "accept", "--run", &run]] {
            nexus(arguments);
            assert!(bench.state.join("layers").join(&run).join("journal").exists(), "{arguments:?}");
            assert!(bench.state.join("runs").join(&run).exists(), "{arguments:?}");
        }
        assert!(stderr(&nexus(&["changes", "recover"])).contains("it is not there any more"));
        // Only the layer has the old versions of what had arrived.
        let output = nexus(&["changes", "reject", "--run", &run]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stdout(&output));
        assert!(bench.state.join("layers").join(&run).join("journal").exists());
        let output = nexus(&["changes", "reject", "--set-aside", "--run", &run]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.state.join("kept").join(&run).exists(), "{}", stdout(&output));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// Starts a run that waits for a line before it ends.
fn start(bench: &Bench, script: &str) -> Child {
    let script = format!("{script}; echo up; read line; exit 0");
    let mut command = bench.nexus(["run", "--stdin", "--changes", "commit", "--shell", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    child
}

fn end(mut child: Child) -> Output {
    drop(child.stdin.take());
    child.wait_with_output().unwrap()
}

#[test]
fn a_commit_on_top_of_a_half_applied_one_finishes_it_first() {
    for bench in benches() {
        // Between the start of B and its end no other command may finish A's commit.
        let (_, _, nth) = half_applied_at(&bench);
        assert!(bench.run(["changes", "recover"]).status.success());
        files(&bench);
        let b = start(&bench, "echo B > a; echo B > z; echo B > of_b");
        let mut command = bench.nexus(["run", "--changes", "commit", "--shell", SCRIPT]);
        command.env("NEXUS_INJECT", format!("abort:{nth}")).output().unwrap();
        assert!(is_mixed(&version(&bench.workspace)), "{}: {:?}", bench.who(), version(&bench.workspace));
        let output = end(b);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("is finished now"), "{}", stderr(&output));
        assert_eq!(version(&bench.workspace), new_version(), "{}", bench.who());
        // What B had is not lost, and nothing overwrites it later.
        assert_eq!(stdout(&bench.run(["changes", "recover"])), "No commit was interrupted.\n");
        let listed = stdout(&bench.run(["changes", "list"]));
        assert!(listed.contains("of_b"), "{listed}");
        assert_eq!(version(&bench.workspace), new_version());
    }
}

#[test]
fn an_accept_that_is_killed_half_way_is_named_and_finished() {
    for bench in benches() {
        for nth in 1..500 {
            files(&bench);
            assert_eq!(bench.run(["run", "--changes", "review", "--shell", SCRIPT]).status.code(), Some(0));
            let mut command = bench.nexus(["changes", "accept"]);
            let output = command.env("NEXUS_INJECT", format!("abort:{nth}")).output().unwrap();
            assert_ne!(output.status.code(), Some(0), "the accept ended before it stood half-way");
            if is_mixed(&version(&bench.workspace)) {
                break;
            }
            assert!(bench.run(["changes", "recover"]).status.success());
            for row in support::report(&bench.run(["changes", "list", "--json"])).as_array().unwrap() {
                assert_eq!(row["cut_short"], serde_json::Value::Null, "the run itself was whole");
                let run = row["run_id"].as_str().unwrap();
                assert_eq!(bench.run(["changes", "reject", "--run", run]).status.code(), Some(0));
            }
        }
        assert!(stderr(&bench.run(["changes", "list"])).contains("was interrupted"));
        assert_eq!(bench.run(["changes", "recover"]).status.code(), Some(0));
        assert_eq!(version(&bench.workspace), new_version());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// Runs `nexus` and kills it at its nth removal of a name. `None` when it had ended before.
fn killed_at_removal(bench: &Bench, nth: usize, arguments: &[&str]) -> Option<()> {
    let program = bench.nexus([] as [&str; 0]).get_program().to_owned();
    let inject = format!("inject=unlinkat:signal=KILL:when={nth}");
    let mut traced = bench.command("strace");
    traced.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=unlinkat", "-e", &inject]).arg(program).args(arguments);
    let output = traced.current_dir("/").output().unwrap();
    (!output.status.success()).then_some(())
}

#[test]
fn a_reject_that_is_killed_never_leaves_a_part_as_the_whole() {
    for bench in benches() {
        let mut kills = 0;
        for nth in 1..100 {
            let script = "mkdir d; for i in 1 2 3 4 5; do echo $i > d/$i; done";
            let (report, _) = bench.json(["--changes", "review", "--shell", script]);
            let run = report["run_id"].as_str().unwrap();
            if killed_at_removal(&bench, nth, &["changes", "reject", "--run", run]).is_none() {
                break;
            }
            kills += 1;
            let listed = support::report(&bench.run(["changes", "list", "--json"]));
            match listed.as_array().unwrap().as_slice() {
                [] => continue,
                [row] if row["state"] == "being_removed" => {}
                [row] => {
                    assert_eq!(row["state"], "waiting");
                    let shown = stdout(&bench.run(["changes", "show"]));
                    assert_eq!(shown.matches("A d/").count(), 5, "{}: kill {nth}: {shown}", bench.who());
                }
                more => panic!("{more:?}"),
            }
            assert_eq!(bench.run(["changes", "reject", "--run", run]).status.code(), Some(0));
        }
        assert!(kills > 5, "{}: only {kills} kills", bench.who());
        assert_eq!(stdout(&bench.run(["changes", "list"])), "No changes wait for a decision.\n");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_commit_that_was_given_up_is_never_finished() {
    for bench in benches() {
        let away = bench.base.path().join("away");
        let (run, mixed) = half_applied(&bench);
        fs::rename(&bench.workspace, &away).unwrap();
        let output =
            bench.nexus(["changes", "reject", "--set-aside", "--run", &run]).current_dir("/").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        fs::rename(&away, &bench.workspace).unwrap();
        let output = bench.run(["run", "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(version(&bench.workspace), mixed, "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

/// A reject of an older version said that a layer goes before the commit was taken back, and could be killed in between.
#[test]
fn a_layer_that_goes_with_its_journal_is_set_aside() {
    for bench in benches() {
        let (run, mixed) = half_applied(&bench);
        let layer = bench.state.join("layers").join(&run);
        let upper = version(&layer.join("upper"));
        fs::rename(layer.join("run.json"), layer.join("run.gone")).unwrap();
        let output = bench.run(["run", "--", "true"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let kept = bench.state.join("kept").join(&run);
        assert!(stderr(&output).contains(kept.to_str().unwrap()), "{}", stderr(&output));
        assert_eq!(version(&bench.workspace), mixed, "{}", bench.who());
        assert_eq!(version(&kept.join("upper")), upper, "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn an_accept_that_is_killed_while_it_tidies_up_leaves_nothing() {
    for bench in benches() {
        let mut kills = 0;
        for nth in 1..100 {
            files(&bench);
            let (report, _) = bench.json(["--changes", "review", "--shell", SCRIPT]);
            let run = report["run_id"].as_str().unwrap();
            if killed_at_removal(&bench, nth, &["changes", "accept", "--run", run]).is_none() {
                break;
            }
            kills += 1;
            let recovered = bench.run(["changes", "recover"]);
            assert_eq!(recovered.status.code(), Some(0), "{}: kill {nth}: {}", bench.who(), stderr(&recovered));
            // Removals before the decision leave the run waiting.
            if !bench.leftovers().is_empty() {
                let accepted = bench.run(["changes", "accept", "--run", run]);
                assert_eq!(accepted.status.code(), Some(0), "{}: kill {nth}: {}", bench.who(), stderr(&accepted));
            }
            assert_eq!(version(&bench.workspace), new_version(), "{}: kill {nth}", bench.who());
            assert!(bench.leftovers().is_empty(), "{}: kill {nth}: {:?}", bench.who(), bench.leftovers());
        }
        assert!(kills > 5, "{}: only {kills} kills", bench.who());
    }
}

/// Makes the earlier version of a file immutable once the commit is marked done.
#[test]
fn what_cannot_be_removed_is_named_and_holds_no_run_up() {
    if !support::needs_root() {
        return;
    }
    for bench in benches().into_iter().filter(|bench| bench.user.is_none()) {
        for nth in 1.. {
            files(&bench);
            let mut command = bench.nexus(["run", "--changes", "commit", "--shell", SCRIPT]);
            let output = command.env("NEXUS_INJECT", format!("abort:{nth}")).output().unwrap();
            assert_ne!(output.status.code(), Some(0), "the commit was never marked done");
            let layer = fs::read_dir(bench.state.join("layers")).unwrap().next();
            let Some(layer) = layer.map(|layer| layer.unwrap().path()) else { continue };
            let earlier = layer.join("upper/a");
            if layer.join("journal.done").exists() && earlier.exists() {
                let chattr =
                    |flag: &str, path: &Path| std::process::Command::new("chattr").arg(flag).arg(path).output();
                assert!(chattr("+i", &earlier).unwrap().status.success());
                let next = bench.run(["run", "--shell", "cat a"]);
                let told = stderr(&next);
                let at = told.split("stays in ").nth(1).and_then(|rest| rest.split(": ").next()).map(PathBuf::from);
                chattr("-i", at.as_ref().unwrap_or(&earlier)).unwrap();
                assert_eq!((next.status.code(), stdout(&next).as_str()), (Some(0), "run\n"), "{told}");
                assert_eq!(fs::read_to_string(at.unwrap()).unwrap(), "old\n", "{told}");
                assert!(told.contains("not permitted"), "{told}");
                assert_eq!(version(&bench.workspace), new_version());
                assert_eq!(stderr(&bench.run(["run", "--shell", "true"])), "");
                break;
            }
            assert!(bench.run(["changes", "recover"]).status.success());
            for row in support::report(&bench.run(["changes", "list", "--json"])).as_array().unwrap() {
                let run = row["run_id"].as_str().unwrap();
                assert_eq!(bench.run(["changes", "reject", "--run", run]).status.code(), Some(0));
            }
        }
    }
}
