//! A sandbox that was killed and is not gone: `nexus` reports it, leaves it to a later command and loses nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "lingers/elsewhere.rs"]
mod elsewhere;
#[path = "lingers/held.rs"]
mod held;
#[path = "lingers/set_up.rs"]
mod set_up;
mod support;

use held::{Held, TAKER, first_of, is_dead, may_trace, state_of};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, benches, processes_with, random, skip, stderr, wait_for, wait_until};

const PATIENCE: Duration = Duration::from_secs(20);

fn ended(mut child: Child, bench: &Bench) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{}: nexus waits: {}", bench.who(), stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a command to its time limit while the kernel holds its sandbox.
fn run_and_leave(bench: &Bench, flags: &[&str]) -> (Held, Output) {
    let words = format!("600.{}", random());
    let mut command = bench.nexus(["run", "--timeout", "2s", "--grace", "10ms"]);
    command.args(flags).args(["--shell", &format!("echo work > made; exec sleep {words}")]);
    let child = started(command);
    let held = Held::hold(bench, &words);
    (held, ended(child, bench))
}

/// The number of the only run that is recorded.
fn recorded(bench: &Bench) -> String {
    let all = std::fs::read_dir(bench.state.join("runs")).unwrap();
    let mut names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.find(|name| !name.contains('.')).unwrap()
}

#[test]
fn a_killed_sandbox_that_the_kernel_keeps_holds_up_no_end() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, output) = run_and_leave(&bench, &["--changes", "commit"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(124), "{}: {said}", bench.who());
        assert!(said.contains("The kernel still takes the sandbox apart"), "{}: {said}", bench.who());
        let run = recorded(&bench);
        assert!(!bench.workspace.join("made").exists(), "{}: committed before it was gone", bench.who());

        let began = Instant::now();
        let next = bench.run(["run", "--", "true"]);
        assert_eq!(next.status.code(), Some(0), "{}: {}", bench.who(), stderr(&next));
        assert!(stderr(&next).contains("still takes the sandbox of the run"), "{}: {}", bench.who(), stderr(&next));
        assert!(began.elapsed() < Duration::from_secs(5), "{}: {:?}", bench.who(), began.elapsed());
        let early = bench.run(["changes", "accept", "--run", &run]);
        assert!(!early.status.success(), "{}: {}", bench.who(), stderr(&early));
        assert!(bench.state.join("layers").join(&run).join("upper/made").exists(), "{}: it is lost", bench.who());

        held.let_go();
        let accept = || bench.run(["changes", "accept", "--run", &run]).status.success();
        wait_until("an accept", PATIENCE, accept);
        assert_eq!(std::fs::read_to_string(bench.workspace.join("made")).unwrap(), "work\n", "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn what_a_left_run_discards_goes_away_later() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, output) = run_and_leave(&bench, &["--changes", "discard"]);
        assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("is not removed yet"), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.leftovers().is_empty(), "{}: no record", bench.who());
        held.let_go();
        wait_until("the removal", PATIENCE, || {
            bench.run(["changes", "list"]).status.success() && bench.leftovers().is_empty()
        });
        assert!(!bench.workspace.join("made").exists(), "{}", bench.who());
    }
}

#[test]
fn a_direct_run_that_is_left_is_found_by_its_record() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, output) = run_and_leave(&bench, &["--direct"]);
        assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("The kernel still takes the sandbox apart"), "{}", stderr(&output));
        let next = bench.run(["run", "--direct", "--", "true"]);
        assert_eq!(next.status.code(), Some(125), "{}: it runs beside the other: {}", bench.who(), stderr(&next));
        held.let_go();
        wait_until("a run", PATIENCE, || bench.run(["run", "--direct", "--", "true"]).status.success());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

/// The directories with what the runs wrote.
fn layers(bench: &Bench) -> Vec<PathBuf> {
    let all = std::fs::read_dir(bench.state.join("layers")).unwrap();
    all.map(|entry| entry.unwrap().path().join("upper")).collect()
}

/// A run whose `nexus` was killed while the kernel holds its sandbox.
fn kill_and_leave(bench: &Bench, flags: &[&str], directory: &Path) -> Held {
    let words = format!("600.{}", random());
    let mut command = bench.nexus(["run"]);
    command.args(flags).args(["--shell", &format!("echo work > made; exec sleep {words}")]).current_dir(directory);
    let mut child = started(command);
    let held = Held::hold(bench, &words);
    child.kill().unwrap();
    child.wait().unwrap();
    held
}

const LEFT: &str = "The kernel still takes the sandbox of the run";

#[test]
fn runs_of_killed_programs_cost_one_short_wait_together() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let directory = |name: &str| {
            bench.write(&format!("{name}/file"), "");
            bench.workspace.join(name)
        };
        let (direct, other) = (directory("direct"), directory("other"));
        let mut held = vec![kill_and_leave(&bench, &["--direct"], &direct)];
        for name in ["a", "b"] {
            held.push(kill_and_leave(&bench, &["--changes", "commit"], &directory(name)));
        }
        for limit in [2500, 1500] {
            let began = Instant::now();
            let next = bench.run(["ps"]);
            let said = stderr(&next);
            assert!(began.elapsed() < Duration::from_millis(limit), "{}: {:?}", bench.who(), began.elapsed());
            assert_eq!(next.status.code(), Some(0), "{}: {said}", bench.who());
            assert_eq!(said.matches(LEFT).count(), 3, "{}: {said}", bench.who());
            assert!(!said.contains("half applied"), "{}: {said}", bench.who());
        }
        let beside = bench.nexus(["run", "--", "true"]).current_dir(&other).output().unwrap();
        assert_eq!(beside.status.code(), Some(0), "{}: {}", bench.who(), stderr(&beside));
        let there = bench.nexus(["run", "--direct", "--", "true"]).current_dir(&direct).output().unwrap();
        let said = stderr(&there);
        assert_eq!(there.status.code(), Some(125), "{}: it runs beside the other: {said}", bench.who());
        let last = said.lines().last().unwrap();
        assert!(last.contains(LEFT) && !last.contains("half applied"), "{}: {said}", bench.who());

        held.into_iter().for_each(Held::let_go);
        wait_until("a run", PATIENCE, || {
            bench.nexus(["run", "--direct", "--", "true"]).current_dir(&direct).output().unwrap().status.success()
        });
        let parked = support::stdout(&bench.run(["changes", "list"]));
        assert_eq!(parked.lines().count(), 2, "{}: {parked}", bench.who());
    }
}

/// Directories of control groups that are named like a run.
fn groups_of(run: &str) -> Vec<PathBuf> {
    let output = Command::new("find").args(["/sys/fs/cgroup", "-type", "d", "-name", run]).output().unwrap();
    support::stdout(&output).lines().map(PathBuf::from).collect()
}

#[test]
fn a_rejected_run_keeps_its_record_until_its_sandbox_is_gone() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        if !support::stdout(&bench.run(["doctor"])).contains("  yes  limits.memory") {
            skip::partial("no control groups here");
            continue;
        }
        let (held, output) = run_and_leave(&bench, &["--changes", "commit", "--memory", "128M"]);
        assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
        let run = recorded(&bench);
        assert!(!groups_of(&run).is_empty(), "{}", bench.who());
        let rejected = bench.run(["changes", "reject", "--run", &run]);
        assert_eq!(rejected.status.code(), Some(0), "{}: {}", bench.who(), stderr(&rejected));
        assert_eq!(recorded(&bench), run, "{}", bench.who());
        let list = bench.run(["changes", "list"]);
        assert!(stderr(&list).contains("Nothing of the run waits."), "{}: {}", bench.who(), stderr(&list));
        assert_eq!(support::stdout(&list), "No changes wait for a decision.\n", "{}", bench.who());
        held.let_go();
        wait_until("the end of the record", PATIENCE, || {
            bench.run(["ps"]).status.success() && bench.leftovers().is_empty()
        });
        assert_eq!(groups_of(&run), [] as [PathBuf; 0], "{}", bench.who());
    }
}

#[test]
fn a_record_that_cannot_be_read_is_no_sign_that_a_run_is_over() {
    if !may_trace() {
        return;
    }
    let torn: fn(&str) -> String = |record| record[..50].to_owned();
    let newer: fn(&str) -> String = |record| record.replace("\"version\":2", "\"version\":9");
    for bench in benches() {
        for (flags, damage) in
            [(["--changes", "commit"], torn), (["--changes", "commit"], newer), (["--direct", "--net=none"], torn)]
        {
            let held = kill_and_leave(&bench, &flags, &bench.workspace);
            let (run, what) = (recorded(&bench), format!("{} {}", bench.who(), flags[0]));
            let file = bench.state.join("runs").join(&run);
            let record = std::fs::read_to_string(&file).unwrap();
            assert_ne!(damage(&record), record, "{what}");
            std::fs::write(&file, damage(&record)).unwrap();
            for command in [vec!["changes", "list"], vec!["changes", "accept", "--run", &run], vec!["ps"]] {
                let output = bench.run(&command);
                assert_eq!(output.status.success(), command[1..].len() < 2, "{what}: {}", stderr(&output));
                assert!(!stderr(&output).contains("parked"), "{what}: {}", stderr(&output));
            }
            assert!(stderr(&bench.run(["ps"])).contains(&format!("{LEFT} {run} apart")), "{what}");
            assert!(file.exists(), "{what}: it is taken for gone");
            held.let_go();
            wait_until("the end of the record", PATIENCE, || bench.run(["ps"]).status.success() && !file.exists());
            if flags[0] == "--changes" {
                let accept = bench.run(["changes", "accept", "--run", &run]);
                assert_eq!(accept.status.code(), Some(0), "{what}: {}", stderr(&accept));
            }
            std::fs::remove_file(bench.workspace.join("made")).unwrap();
            assert!(bench.leftovers().is_empty(), "{what}: {:?}", bench.leftovers());
        }
    }
}

#[test]
fn a_decision_about_a_left_run_says_that_its_sandbox_is_there() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let (held, _) = run_and_leave(&bench, &["--changes", "commit"]);
        let run = recorded(&bench);
        for command in ["accept", "show", "diff"] {
            let output = bench.run(["changes", command, "--run", &run]);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{}: {command}: {said}", bench.who());
            assert!(said.contains("is not gone yet"), "{}: {command}: {said}", bench.who());
            assert_eq!(said.lines().count(), 1, "{}: {command}: {said}", bench.who());
        }
        held.let_go();
    }
}

#[test]
fn a_stopped_holder_of_a_record_is_named_with_the_run() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let held = kill_and_leave(&bench, &["--changes", "commit"], &bench.workspace);
        let run = recorded(&bench);
        // As a command that recovers the run and was stopped meanwhile.
        let record = std::fs::File::options().write(true).open(bench.state.join("runs").join(&run)).unwrap();
        rustix::fs::fcntl_lock(&record, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        for command in ["accept", "show", "diff"] {
            let began = Instant::now();
            let output = bench.run(["changes", command, "--run", &run]);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(125), "{}: {command}: {said}", bench.who());
            let who = format!("the process {} holds its record", std::process::id());
            assert!(said.contains(&who), "{}: {command}: {said}", bench.who());
            assert!(began.elapsed() < Duration::from_secs(5), "{}: {:?}", bench.who(), began.elapsed());
        }
        drop(record);
        held.let_go();
        let accept = || bench.run(["changes", "accept", "--run", &run]).status.success();
        wait_until("an accept", PATIENCE, accept);
    }
}

#[test]
fn a_record_of_another_driver_names_the_file_and_a_way_out() {
    for bench in benches() {
        let mut child = started(bench.nexus(["run", "--shell", "echo work > made; exec sleep 600"]));
        wait_until("a record", PATIENCE, || {
            bench.state.join("runs").read_dir().is_ok_and(|mut all| all.next().is_some())
        });
        let run = recorded(&bench);
        wait_until("the command", PATIENCE, || bench.state.join("layers").join(&run).join("upper/made").exists());
        child.kill().unwrap();
        child.wait().unwrap();
        let file = bench.state.join("runs").join(&run);
        let record = std::fs::read_to_string(&file).unwrap().replace("\"driver\":\"namespace\"", "\"driver\":\"vm\"");
        std::fs::write(&file, &record).unwrap();
        assert!(record.contains("\"vm\""), "{record}");
        let output = bench.run(["run", "--", "true"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{}: {said}", bench.who());
        assert!(said.contains("driver vm") && said.contains(file.to_str().unwrap()), "{}: {said}", bench.who());
        assert!(!said.contains("half applied"), "{}: {said}", bench.who());
        std::fs::remove_file(&file).unwrap();
        let list = support::stdout(&bench.run(["changes", "list"]));
        assert!(list.contains(&run), "{}: {list}", bench.who());
    }
}

/// Waits until standard input says something, and then goes on with what `after` says.
fn with_full_state(bench: &Bench, run: &str, after: &str) -> Child {
    let (uid, program) = (bench.user.unwrap_or(0), bench.nexus([] as [&str; 0]).get_program().to_owned());
    let drop = if uid == 0 { String::new() } else { format!("setpriv --reuid {uid} --regid {uid} --clear-groups") };
    let script = format!(
        "mount -t tmpfs -o size=2m,uid={uid},gid={uid},mode=700 none $NEXUS_STATE_DIR; cd $WORKSPACE\n\
         {drop} $0 {run} & read line; cat /dev/zero > $NEXUS_STATE_DIR/fill 2> /dev/null; wait $!; echo code $?\n\
         {drop} $0 ps; echo then $?; read line; rm $NEXUS_STATE_DIR/fill\n{after}"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "bash", "-c", &script.replace("$NEXUS ", &format!("{drop} $0 "))]);
    command.arg(program).env("NEXUS_STATE_DIR", &bench.state).env("HOME", &bench.home);
    command.env("WORKSPACE", &bench.workspace);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_full_state_directory_changes_no_end_of_a_left_run() {
    if !support::needs_root() {
        return;
    }
    for bench in benches() {
        for (changes, expected) in [("discard", "No changes wait"), ("commit", "sleep")] {
            let words = format!("600.{}", random());
            let run = format!(
                "run --changes {changes} --timeout 3s --grace 10ms --shell 'echo work > made; exec sleep {words}'"
            );
            let again = "for try in $(seq 200); do $NEXUS changes list > list; test -z \"$(ls $NEXUS_STATE_DIR/runs)\" && break; \
                         done; cat list; rm list; ls $NEXUS_STATE_DIR/runs";
            let mut child = with_full_state(&bench, &run, again);
            let held = Held::hold(&bench, &words);
            let mut told = child.stdin.take().unwrap();
            told.write_all(b"\n").unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
            let code: Vec<_> = lines.by_ref().take_while(|line| !line.starts_with("then")).collect();
            held.let_go();
            told.write_all(b"\n").unwrap();
            let rest: Vec<_> = lines.collect();
            let said = stderr(&child.wait_with_output().unwrap());
            let what = format!("{} {changes}: {rest:?} {said}", bench.who());
            assert_eq!(code[0], "code 124", "{what}");
            assert!(said.contains("The kernel still takes the sandbox apart"), "{what}");
            assert!(rest.len() == 1 && rest[0].contains(expected), "{what}");
        }
    }
}

#[test]
fn no_process_runs_on_below_a_first_one_that_is_frozen() {
    let Some(freezer) = held::freezer() else { return };
    for bench in benches() {
        for flags in [["--changes", "commit"], ["--direct", "--net=none"]] {
            let words = format!("600.{}", random());
            let mut command = bench.nexus(["run", "--timeout", "2s", "--grace", "10ms"]);
            let script = format!("while :; do echo more >> made; sleep 0.01; done; : {words}");
            let child = started({
                command.args(flags).args(["--shell", &script]);
                command
            });
            let inside = || {
                let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                processes_with(&words)
                    .into_iter()
                    .filter(|pid| name(*pid) != "nexus\n" && !is_dead(*pid))
                    .collect::<Vec<_>>()
            };
            // A child of the shell has its words until it executes `sleep`.
            let first = wait_for("the command", PATIENCE, || inside().into_iter().find_map(first_of));
            // The first process has reported the start once it sleeps and the command works.
            let made = || {
                let all = if flags[0] == "--direct" { vec![bench.workspace.clone()] } else { layers(&bench) };
                all.iter().any(|place| std::fs::metadata(place.join("made")).is_ok_and(|made| made.len() > 100))
            };
            wait_until("the start", PATIENCE, || made() && state_of(first) == Some('S'));
            let frozen = held::Frozen::freeze(&freezer, first);
            let output = ended(child, &bench);
            let alive = inside();
            frozen.thaw();
            assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
            assert_eq!(alive, [] as [u32; 0], "{}: {flags:?}: they write on", bench.who());
            bench.run(["changes", "reject"]);
        }
    }
}

#[test]
fn a_holder_of_the_guest_channel_outside_holds_up_no_end() {
    if !support::needs_root() {
        return;
    }
    for bench in benches() {
        let words = format!("600.{}", random());
        let mut command = bench.nexus(["run", "--timeout", "2s", "--grace", "10ms", "--shell"]);
        command.arg(format!("exec sleep {words}"));
        let child = started(command);
        let name = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let found = || processes_with(&words).into_iter().find(|pid| name(*pid) == "sleep\n");
        let first = wait_for("the command", PATIENCE, || found().and_then(first_of));
        let mut taker = Command::new("python3");
        taker.args(["-c", TAKER, &first.to_string()]).stdin(Stdio::piped());
        let mut taker = taker.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(taker.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        let output = ended(child, &bench);
        drop(taker.stdin.take());
        taker.wait().unwrap();
        assert_eq!(output.status.code(), Some(124), "{}: {}", bench.who(), stderr(&output));
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn the_end_of_a_command_waits_for_its_sandbox_and_says_so() {
    if !may_trace() {
        return;
    }
    for bench in benches() {
        let words = format!("600.{}", random());
        let script = format!("echo work > made; sleep {words} & read line; exit 0");
        let mut command = bench.nexus(["run", "--stdin", "--changes", "commit", "--shell"]);
        command.arg(&script).stdin(Stdio::piped());
        let mut child = started(command);
        let held = Held::hold(&bench, &words);
        drop(child.stdin.take());
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        assert!(said.contains("the kernel still frees what its processes held"), "{}: {said}", bench.who());
        assert_eq!(child.try_wait().unwrap(), None, "{}", bench.who());
        held.let_go();
        let output = ended(child, &bench);
        assert_eq!(output.status.code(), Some(0), "{}: {:?}", bench.who(), lines.collect::<Vec<_>>());
        assert!(bench.workspace.join("made").exists(), "{}", bench.who());
    }
}
