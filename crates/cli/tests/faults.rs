//! Each step of a sandbox's and of a layer's life is made to fail in turn (feature `inject`).
//!
//! A sandbox whose set-up fails must never run the command. A layer whose commit fails must leave the workspace the
//! old version with the changes kept and listed, or the new version: never a mix, and nothing lost in silence.

#![cfg(feature = "inject")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use nexus_driver_namespace::Step;
use nexus_layer::Phase;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Output;
use std::thread;
use support::traces::{Lone, lone_benches};
use support::{is_root, stderr, stdout};

const SCRIPT: &str = "echo STARTED; touch marker";

/// Steps that only root's launches have, or only launches with a control group.
const ROOT_ONLY: &[Step] = &[
    Step::IdMapNamespace,
    Step::IdMappedMounts,
    Step::RootOverlay,
    Step::MakeCgroup,
    Step::EnterCgroup,
    Step::AwaitParent,
];

/// Steps that only a launcher process has, or at which no launch fails; `crates/drivers/namespace/tests/launcher.rs` has them.
const LAUNCHER_ONLY: &[Step] = &[Step::Template, Step::NetworkPool, Step::DetachedLayers];

/// Flags that lead a launch through different steps.
fn variants(bench: &Lone) -> Vec<Vec<String>> {
    let bound = bench.base.path().join("bound");
    fs::create_dir_all(&bound).unwrap();
    let mut all = vec![
        vec![],
        vec!["--disk".to_owned(), "8M".to_owned()],
        vec!["--direct".to_owned()],
        vec!["--hide".to_owned(), "secret*".to_owned()],
        vec!["--allow".to_owned(), "a.test@/usr/bin/curl".to_owned()],
        vec!["--ro".to_owned(), format!("{}:/bound", bound.display())],
        vec!["--secret".to_owned(), "KEY=env:FAULT_KEY".to_owned()],
    ];
    if bench.user.is_none() && is_root() {
        all.push(vec!["--memory".to_owned(), "64M".to_owned()]);
    }
    all
}

fn with_fault(bench: &Lone, step: &str, flags: &[String], script: &str) -> Output {
    let mut command = bench.nexus(["run"]);
    command
        .args(flags)
        .args(["--shell", script])
        .env("NEXUS_INJECT", step)
        .env("FAULT_KEY", "0123456789")
        .output()
        .unwrap()
}

/// Tries one step in every variant; returns whether any came to it.
fn is_reached(bench: &Lone, step: &str) -> bool {
    let marker = bench.workspace.join("marker");
    let mut reached = false;
    for flags in variants(bench) {
        let what = format!("{step} fails, {flags:?}");
        let before = bench.before();
        let output = with_fault(bench, step, &flags, SCRIPT);
        let (out, err) = (stdout(&output), stderr(&output));
        if output.status.code() == Some(0) {
            // Not on this way: then the run is an ordinary one.
            assert_eq!((out.as_str(), err.as_str()), ("STARTED\n", ""), "{}, {what}", bench.who());
            fs::remove_file(&marker).unwrap();
        } else {
            reached = true;
            assert_eq!(output.status.code(), Some(125), "{}, {what}: {out}{err}", bench.who());
            assert_eq!(out, "", "{}, {what}: the command ran", bench.who());
            assert_eq!(err.lines().count(), 1, "{}, {what}: {err}", bench.who());
            assert!(err.contains(step), "{}, {what}: {err}", bench.who());
            assert!(!marker.exists(), "{}, {what}: the command ran", bench.who());
        }
        bench.assert_no_trace(&before, &what);
    }
    reached
}

#[test]
fn a_set_up_step_that_fails_is_named_and_nothing_starts() {
    let reached: BTreeMap<&str, Vec<bool>> = thread::scope(|scope| {
        let benches = [lone_benches(), lone_benches()].into_iter().flatten().collect::<Vec<_>>();
        let half = benches.len() / 2;
        let workers: Vec<_> = benches
            .into_iter()
            .enumerate()
            .map(|(number, bench)| {
                scope.spawn(move || {
                    bench.write(".git/config", "[core]\n");
                    bench.write("secret.txt", "x");
                    // Two benches of each identity share the steps.
                    let mine =
                        Step::ALL.iter().enumerate().filter(|(at, _)| at % 2 == number / half).map(|(_, step)| step);
                    mine.map(|step| (step.name(), is_reached(&bench, step.name()))).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut all = BTreeMap::<&str, Vec<bool>>::new();
        for (name, reached) in workers.into_iter().flat_map(|worker| worker.join().unwrap()) {
            all.entry(name).or_default().push(reached);
        }
        all
    });
    assert_eq!(reached.len(), Step::ALL.len());
    let never: BTreeSet<&str> =
        reached.into_iter().filter(|(_, by)| !by.contains(&true)).map(|(name, _)| name).collect();
    let root_only = if is_root() { &[] } else { ROOT_ONLY };
    let expected: BTreeSet<&str> = LAUNCHER_ONLY.iter().chain(root_only).map(|step| step.name()).collect();
    assert_eq!(never, expected, "steps that no run of this test came to");
}

#[test]
fn no_command_runs_where_core_files_go_to_a_socket() {
    for bench in lone_benches() {
        let pattern = bench.base.path().join("core_pattern");
        let run = |text: &str, words: &[&str]| {
            fs::write(&pattern, text).unwrap();
            bench.nexus(words).env("NEXUS_INJECT_CORE_PATTERN", &pattern).output().unwrap()
        };
        let command = ["run", "--", "/bin/echo", "STARTED"];
        let refused = run("@/run/cores.socket\n", &command);
        assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(125), ""), "{}", bench.who());
        for words in ["(@/run/cores.socket)", "sysctl -w kernel.core_pattern=core"] {
            assert!(stderr(&refused).contains(words), "{}: {}", bench.who(), stderr(&refused));
        }
        let doctor = run("@@/run/cores.socket\n", &["doctor"]);
        assert_eq!(doctor.status.code(), Some(125), "{}", bench.who());
        assert!(stdout(&doctor).contains("MISSING  core files that stay inside: kernel.core_pattern names a socket"));
        // Programs and files are held off by the limit.
        for pattern in ["|/usr/bin/handler\n", "core\n"] {
            assert_eq!(stdout(&run(pattern, &command)), "STARTED\n", "{}: {pattern}", bench.who());
        }
        assert!(!stdout(&run("core\n", &["doctor"])).contains("core_pattern"), "{}", bench.who());
    }
}

/// A caller with the right raises the limit to the one with which the kernel starts no program. Others run commands where the
/// pattern names none.
#[test]
fn a_caller_without_core_files_runs_commands() {
    for bench in lone_benches() {
        let pattern = bench.base.path().join("core_pattern");
        let run = |text: &str| {
            fs::write(&pattern, text).unwrap();
            let words = ["run", "--", "/bin/grep", "core file", "/proc/self/limits"];
            let nexus = bench.nexus(words);
            let mut command = bench.command("prlimit");
            command.arg("--core=0:0").arg(nexus.get_program()).args(nexus.get_args());
            command.env("NEXUS_INJECT_CORE_PATTERN", &pattern).output().unwrap()
        };
        // Root of a container may lack the right.
        let raise = ["--core=0:0", "prlimit", "--core=1:1", "true"];
        let has_raised = bench.command("prlimit").args(raise).output().unwrap().status.success();
        let output = run("core\n");
        let said = stdout(&output);
        let limits: Vec<&str> = said.split_whitespace().skip(4).take(2).collect();
        assert_eq!(limits, if has_raised { ["1", "1"] } else { ["0", "0"] }, "{}: {}", bench.who(), stderr(&output));
        let output = run("|/usr/bin/handler\n");
        assert_eq!(
            output.status.code(),
            Some(if has_raised { 0 } else { 125 }),
            "{}: {}",
            bench.who(),
            stderr(&output)
        );
        assert_eq!(stderr(&output).contains("ulimit -Hc"), !has_raised, "{}: {}", bench.who(), stderr(&output));
    }
}

/// Parts of the confinement that are left out, and checks of the proof that must see it.
const UNPROVED: &[(&str, &[&str])] = &[
    ("read_only_root", &["root_flags"]),
    ("read_only_root,landlock_files", &["write_root", "root_flags"]),
    ("nosuid", &["root_flags", "workspace_flags"]),
    ("nodev", &["root_flags", "workspace_flags"]),
    ("seccomp", &["socket_packet", "new_user_namespace", "read_keyring", "seccomp"]),
    ("no_new_privileges", &["no_new_privs"]),
    ("capabilities", &["capabilities"]),
    ("bounding_set", &["capabilities"]),
    ("core_limit", &["core_limit"]),
    ("no_route", &["reach_network"]),
    ("network_namespace", &["namespace_net"]),
    ("ipc_namespace", &["namespace_ipc"]),
    ("uts_namespace", &["namespace_uts"]),
    ("cgroup_namespace", &["namespace_cgroup"]),
];

/// A user's sandbox writes its own maps, and the kernel refuses more.
const UNPROVED_OF_ROOT: (&str, &[&str]) = ("id_map", &["uid_map"]);

/// Names of the checks in the message about a proof that failed.
fn failed_checks(message: &str) -> Vec<&str> {
    let (_, list) = message.split_once("the proof of the sandbox failed: ").unwrap_or_default();
    list.split("; ").filter_map(|check| check.split(" gave ").next()).collect()
}

#[test]
fn a_proof_that_fails_ends_the_launch() {
    for bench in lone_benches() {
        let by_root = is_root() && bench.user.is_none();
        for (walls, checks) in UNPROVED.iter().chain(by_root.then_some(&UNPROVED_OF_ROOT)) {
            let play = |walls: &str| {
                let mut command = bench.nexus(["run"]);
                command.args(["--shell", SCRIPT]).env("NEXUS_LEAVE_OUT", walls).output().unwrap()
            };
            let (what, before) = (format!("{}, without {walls}", bench.who()), bench.before());
            let output = play(walls);
            let (out, err) = (stdout(&output), stderr(&output));
            assert_eq!((output.status.code(), out.as_str()), (Some(125), ""), "{what}: {err}");
            assert_eq!(err.lines().count(), 1, "{what}: {err}");
            let failed = failed_checks(&err);
            assert!(checks.iter().all(|check| failed.contains(check)), "{what}: {failed:?}");
            assert!(!bench.workspace.join("marker").exists(), "{what}: the command ran");
            bench.assert_no_trace(&before, &what);
            // It is the proof that ended it: without the proof too the command runs.
            let output = play(&format!("{walls},proof"));
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "STARTED\n"), "{what}, no proof");
            fs::remove_file(bench.workspace.join("marker")).unwrap();
        }
    }
}

/// Place of the workspace's files and of the changes after a step of the commit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Before the start: nothing ran, nothing is kept.
    NotStarted,
    /// Before the commit point: exit 125, the workspace is the old version, and the changes are listed.
    Kept,
    /// As above, but nothing on the disk has the changes: they were in memory and could not be copied out. The
    /// message says that they are gone.
    ToldGone,
    /// After the commit point: the workspace is the new version and nothing waits.
    Committed,
}

struct Case {
    step: Phase,
    flags: &'static [&'static str],
    script: &'static str,
    rule: Rule,
}

const CHANGES: &str = "echo new > changed; rm gone; mkdir -p deep/er; echo x > deep/er/file; mv old_name new_name";
/// Only a protected name: the whole layer is parked, by the commit itself.
const PROTECTED: &str = "echo 'net: all' > nexus.yaml";

fn cases() -> Vec<Case> {
    let case = |step, rule| Case { step, flags: &[], script: CHANGES, rule };
    vec![
        case(Phase::CreateLayer, Rule::NotStarted),
        Case { flags: &["--disk", "8M"], ..case(Phase::Materialise, Rule::ToldGone) },
        case(Phase::ReadLayer, Rule::Kept),
        Case { flags: &["--disk", "8M"], ..case(Phase::ReadLayer, Rule::Kept) },
        case(Phase::PlanCommit, Rule::Kept),
        Case { flags: &["--disk", "8M"], ..case(Phase::PlanCommit, Rule::Kept) },
        case(Phase::SyncLayer, Rule::Kept),
        case(Phase::Stage, Rule::Kept),
        case(Phase::WriteJournal, Rule::Kept),
        case(Phase::SyncJournal, Rule::Committed),
        case(Phase::Apply, Rule::Committed),
        Case { flags: &["--disk", "8M"], ..case(Phase::Apply, Rule::Committed) },
        case(Phase::SyncWorkspace, Rule::Committed),
        case(Phase::MarkDone, Rule::Committed),
        case(Phase::Finish, Rule::Committed),
        Case { script: PROTECTED, ..case(Phase::Park, Rule::Kept) },
        // The last step of a commit that is done already.
        case(Phase::Discard, Rule::Committed),
        Case { flags: &["--changes", "discard"], ..case(Phase::Discard, Rule::Kept) },
    ]
}

/// The workspace as text: names, kinds and contents.
fn version(workspace: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![workspace.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(workspace).unwrap().display().to_string();
            if path.is_dir() {
                waiting.push(path);
                all.insert(name, "folder".to_owned());
            } else {
                all.insert(name, fs::read_to_string(path).unwrap());
            }
        }
    }
    all
}

fn version_of(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, content)| ((*name).to_owned(), (*content).to_owned())).collect()
}

fn settles_by_its_rule(case: &Case, as_user: bool) {
    let bench = Lone::new(as_user);
    for (name, content) in [("changed", "old"), ("gone", "x"), ("old_name", "same")] {
        bench.write(name, content);
    }
    let old = version_of(&[("changed", "old"), ("gone", "x"), ("old_name", "same")]);
    let new = version_of(&[
        ("changed", "new\n"),
        ("deep", "folder"),
        ("deep/er", "folder"),
        ("deep/er/file", "x\n"),
        ("new_name", "same"),
    ]);
    assert_eq!(version(&bench.workspace), old);
    let flags: Vec<String> = case.flags.iter().map(|flag| (*flag).to_owned()).collect();
    let what = format!("{}: {} fails, {flags:?} {}", bench.who(), case.step.name(), case.script);
    let before = bench.before();
    let output = with_fault(&bench, case.step.name(), &flags, &format!("echo STARTED; {}", case.script));
    let err = stderr(&output);
    bench.assert_no_process(std::time::Duration::from_secs(5), &what);
    let started = if case.rule == Rule::NotStarted { "" } else { "STARTED\n" };
    assert_eq!(stdout(&output), started, "{what}: {err}");

    if case.rule == Rule::Committed {
        // Tried again and done: then the command's own success is the truth.
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{what}");
        assert_eq!(version(&bench.workspace), new, "{what}");
        assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
        return;
    }
    assert_eq!(output.status.code(), Some(125), "{what}: {err}");
    assert_eq!(err.lines().count(), 1, "{what}: {err}");
    assert!(err.contains(case.step.name()), "{what}: {err}");
    assert_eq!(version(&bench.workspace), old, "{what}");
    if case.rule != Rule::Kept {
        bench.assert_no_trace(&before, &what);
        assert_eq!(err.contains("are gone"), case.rule == Rule::ToldGone, "{what}: {err}");
        return;
    }
    // The next commands neither lose the changes nor apply them.
    for _ in 0..2 {
        let list = stdout(&bench.run(["changes", "list"]));
        assert!(list.contains(bench.workspace.to_str().unwrap()), "{what}: {list}");
        assert_eq!(bench.run(["run", "--", "true"]).status.code(), Some(0), "{what}");
        assert_eq!(version(&bench.workspace), old, "{what}");
    }
    assert!(!bench.leftovers().is_empty(), "{what}");
    let rejected = bench.run(["changes", "reject"]);
    assert_eq!(rejected.status.code(), Some(0), "{what}: {}", stderr(&rejected));
    assert!(stdout(&bench.run(["changes", "list"])).starts_with("No changes"), "{what}");
    bench.assert_no_trace(&before, &what);
}

#[test]
fn a_step_of_the_commit_that_fails_leaves_the_old_version_listed_or_the_new_one() {
    let all = cases();
    let covered: BTreeSet<&str> = all.iter().map(|case| case.step.name()).collect();
    let wanted: BTreeSet<&str> = Phase::ALL.iter().map(|step| step.name()).collect();
    assert_eq!(covered, wanted, "every step of a layer has a rule");
    for case in all {
        settles_by_its_rule(&case, false);
        if is_root() {
            settles_by_its_rule(&case, true);
        }
    }
}

#[test]
fn what_a_finished_commit_parks_is_listed_even_when_it_stopped_on_the_way() {
    for bench in lone_benches() {
        for step in [Phase::Apply, Phase::MarkDone, Phase::Finish] {
            let output = with_fault(&bench, step.name(), &[], "echo fine > fine; echo 'net: all' > nexus.yaml");
            assert_eq!(output.status.code(), Some(0), "{}: {}", step.name(), stderr(&output));
            assert!(stderr(&output).contains("nexus.yaml"), "{}: {}", step.name(), stderr(&output));
            assert_eq!(fs::read_to_string(bench.workspace.join("fine")).unwrap(), "fine\n", "{}", step.name());
            assert!(!bench.workspace.join("nexus.yaml").exists(), "{}", step.name());
            assert!(stdout(&bench.run(["changes", "list"])).contains("nexus.yaml"), "{}", step.name());
            assert!(stdout(&bench.run(["changes", "show"])).contains("A nexus.yaml"), "{}", step.name());
            assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
            fs::remove_file(bench.workspace.join("fine")).unwrap();
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}
