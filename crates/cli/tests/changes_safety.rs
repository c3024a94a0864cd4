//! Changes are never lost: however a run ends, what its command wrote is committed, parked or said to be gone.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;
use support::{Bench, benches, needs_root, processes_with, stderr, stdout, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// Starts `nexus run --stdin` with these flags and this script in a directory, and waits until the script has printed
/// `up`. The script reads a line before it ends.
fn start(bench: &Bench, directory: &Path, flags: &[&str], script: &str) -> Child {
    let script = format!("{script}; echo up; read line; exit 0");
    let mut command = bench.nexus(["run", "--stdin"]);
    command.args(flags).args(["--shell", &script]).current_dir(directory);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"up\n");
    child
}

/// Lets the script end.
fn end(mut child: Child) -> Output {
    drop(child.stdin.take());
    child.wait_with_output().unwrap()
}

fn make_dir(bench: &Bench, name: &str) -> std::path::PathBuf {
    let path = bench.base.path().join(name);
    fs::create_dir(&path).unwrap();
    bench.give(&path);
    path
}

fn write(bench: &Bench, path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    bench.give(path);
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// The id of the only run that waits.
fn only_run(bench: &Bench) -> String {
    let listed = support::report(&bench.run(["changes", "list", "--json"]));
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    listed[0]["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_directory_that_took_the_workspaces_name_gets_nothing() {
    for bench in benches() {
        let (p, p2, old) = (make_dir(&bench, "p"), make_dir(&bench, "p2"), bench.base.path().join("p.old"));
        for (path, text) in [("notes", "old"), ("conf", "old conf")] {
            write(&bench, &p.join(path), text);
            write(&bench, &p2.join(path), "precious");
        }
        let child = start(&bench, &p, &[], "rm notes; echo new > conf.tmp; mv conf.tmp conf");
        fs::rename(&p, &old).unwrap();
        fs::rename(&p2, &p).unwrap();
        let output = end(child);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("was moved or replaced"), "{}", stderr(&output));
        assert_eq!((read(&p.join("notes")), read(&p.join("conf"))), ("precious".to_owned(), "precious".to_owned()));
        assert_eq!((read(&old.join("notes")), read(&old.join("conf"))), ("old".to_owned(), "old conf".to_owned()));
        // In its place again it takes them.
        let run = only_run(&bench);
        assert_eq!(bench.run(["changes", "accept", "--run", &run]).status.code(), Some(125));
        fs::rename(&p, &p2).unwrap();
        fs::rename(&old, &p).unwrap();
        let output = bench.run(["changes", "accept", "--run", &run]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(!p.join("notes").exists() && read(&p.join("conf")) == "new\n");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_link_that_took_the_workspaces_place_leads_nothing_out() {
    for bench in benches() {
        let (sub, victim) = (bench.workspace.join("sub"), make_dir(&bench, "victim"));
        fs::create_dir(&sub).unwrap();
        bench.give(&sub);
        let child =
            start(&bench, &sub, &["--changes", "commit"], "mkdir .ssh; echo key > .ssh/new_key; echo x > planted");
        let swap = format!("rmdir sub && ln -s {} sub", victim.display());
        let output = bench.run(["run", "--changes", "commit", "--shell", &swap]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        // A directory in which a run works is removed only if the user insists.
        assert!(!sub.is_symlink(), "{}", bench.who());
        let output = bench.run(["changes", "accept", "--protected", "--run", &only_run(&bench)]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(sub.is_symlink());
        let output = end(child);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{}: something was planted", bench.who());
        let run = only_run(&bench);
        // Looking at it needs no directory, taking it does.
        for (action, code) in [("accept", 125), ("show", 0)] {
            let output = bench.run(["changes", action, "--run", &run]);
            assert_eq!(output.status.code(), Some(code), "{action}: {}", stderr(&output));
        }
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
        assert_eq!(bench.run(["changes", "reject", "--run", &run]).status.code(), Some(0));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn an_error_of_the_log_after_the_start_parks_the_changes() {
    for bench in benches() {
        let logs = make_dir(&bench, "logs");
        let log = logs.join("log");
        let flags = ["--changes", "commit", "--full-output", log.to_str().unwrap()];
        let child = start(&bench, &bench.workspace, &flags, "echo work > work");
        fs::remove_dir_all(&logs).unwrap();
        let output = end(child);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.workspace.join("work").exists());
        let run = only_run(&bench);
        assert!(stderr(&output).contains(&format!("nexus changes show --run {run}")), "{}", stderr(&output));
        // The receipt tells of it.
        assert_eq!(bench.run(["receipt", "verify", &run]).status.code(), Some(0));
        assert_eq!(bench.run(["changes", "accept"]).status.code(), Some(0));
        assert_eq!(read(&bench.workspace.join("work")), "work\n");
        // What was to be thrown away is.
        fs::create_dir(&logs).unwrap();
        bench.give(&logs);
        let flags = ["--changes", "discard", "--full-output", log.to_str().unwrap()];
        let child = start(&bench, &bench.workspace, &flags, "echo more > more");
        fs::remove_dir_all(&logs).unwrap();
        let output = end(child);
        assert!(stderr(&output).contains("were discarded"), "{}", stderr(&output));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_second_interrupt_parks_and_the_first_one_does_not() {
    use rustix::process::{Pid, Signal, kill_process};
    for bench in benches() {
        let script = "trap 'echo first' INT; echo work > work; echo up; while :; do sleep 0.05; done";
        let mut command = bench.nexus(["run", "--changes", "commit", "--grace", "60s", "--shell", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut next = || {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
            line
        };
        assert_eq!(next(), "up\n");
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(next(), "first\n");
        kill_process(pid, Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(137), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.workspace.join("work").exists(), "{}: half of the work was committed", bench.who());
        assert!(stdout(&bench.run(["changes", "show"])).contains("A work"));
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));

        // One that ends at the first is committed, as the guide says.
        let script = "trap 'exit 7' INT; echo work > work; echo up; while :; do sleep 0.05; done";
        let mut command = bench.nexus(["run", "--changes", "commit", "--shell", script]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
        kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::INT).unwrap();
        assert_eq!(child.wait_with_output().unwrap().status.code(), Some(7));
        assert_eq!(read(&bench.workspace.join("work")), "work\n");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn the_changes_of_a_lost_sandbox_are_parked() {
    for bench in benches() {
        let name = format!("{:x}", support::random());
        let script = format!("echo work > work; (exec -a {name} sleep 600 &)");
        let child = start(
            &bench,
            &bench.workspace,
            &["--changes", "commit"],
            &script.replace("(exec", "bash -c '(exec").replace("&)", "&)'"),
        );
        let inner = || {
            let line = format!("{name} 600");
            let is_it = |pid: &u32| {
                fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| {
                    String::from_utf8_lossy(&found).trim_end_matches('\0').replace('\0', " ") == line
                })
            };
            processes_with(&name).into_iter().find(is_it)
        };
        wait_until("its process", PATIENCE, || inner().is_some());
        let numbers = |pid: u32, key: &str| -> Vec<u32> {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_ascii_whitespace().map(|number| number.parse().unwrap()).collect()
        };
        // Up from there to the one that is the first of a pid namespace inside of ours.
        let mut pid = inner().unwrap();
        while numbers(pid, "NSpid:").last() != Some(&1) {
            pid = numbers(pid, "PPid:")[0];
        }
        assert!(numbers(pid, "NSpid:").len() > 1, "{pid} is no sandbox");
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid.cast_signed()).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_ne!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("the sandbox was lost"), "{}", stderr(&output));
        assert!(!bench.workspace.join("work").exists(), "{}: committed", bench.who());
        assert!(stdout(&bench.run(["changes", "show"])).contains("A work"));
    }
}

#[test]
fn a_killed_run_is_parked_and_only_a_reject_removes_it() {
    for bench in benches() {
        let mut child = start(&bench, &bench.workspace, &["--changes", "review"], "echo hours > work");
        child.kill().unwrap();
        child.wait().unwrap();
        let listed = bench.run(["changes", "list"]);
        assert!(stdout(&listed).contains("[incomplete]"), "{}: {}", bench.who(), stdout(&listed));
        let run = only_run(&bench);
        let told =
            format!("nexus: The run {run} was killed; its changes are parked: nexus changes show --run {run}.\n");
        assert_eq!(stderr(&listed), told);
        for _ in 0..2 {
            assert_eq!(bench.run(["run", "--", "true"]).status.code(), Some(0));
            let shown = bench.run(["changes", "show"]);
            assert!(stdout(&shown).contains("A work") && stdout(&shown).contains("was killed"), "{}", stdout(&shown));
            assert_eq!(stderr(&shown), "");
        }
        assert_eq!(bench.run(["changes", "accept"]).status.code(), Some(0));
        assert_eq!(read(&bench.workspace.join("work")), "hours\n");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_run_that_a_reboot_ended_is_parked_with_a_warning() {
    // Without an id of the machine another one may have the same boot and pid namespace.
    let has_id = fs::read_to_string("/etc/machine-id").is_ok_and(|id| id.trim().len() == 32);
    let warning = if has_id { "the machine went down while" } else { "not known whether its machine went down, so" };
    for bench in benches() {
        let mut child = start(&bench, &bench.workspace, &[], "echo hours > work");
        child.kill().unwrap();
        child.wait().unwrap();
        let layer = fs::read_dir(bench.state.join("layers")).unwrap().next().unwrap().unwrap().path();
        let mut note: serde_json::Value = serde_json::from_slice(&fs::read(layer.join("run.json")).unwrap()).unwrap();
        note["boot"] = "another".into();
        fs::write(layer.join("run.json"), note.to_string()).unwrap();
        let listed = bench.run(["changes", "list"]);
        assert!(stderr(&listed).contains(warning), "{}", stderr(&listed));
        assert!(stdout(&bench.run(["changes", "show"])).contains(warning));
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0));
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn what_a_killed_run_had_in_memory_is_said_to_be_gone() {
    for bench in benches() {
        let mut child = start(&bench, &bench.workspace, &["--disk", "4M"], "echo hours > work");
        child.kill().unwrap();
        child.wait().unwrap();
        let listed = bench.run(["changes", "list"]);
        assert!(stderr(&listed).contains("was in memory (--disk) and is gone"), "{}", stderr(&listed));
        assert_eq!(stdout(&listed), "No changes wait for a decision.\n");
        assert_eq!(stderr(&bench.run(["changes", "list"])), "");
        assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
    }
}

#[test]
fn a_limit_on_file_sizes_is_an_error_and_no_death() {
    for bench in benches() {
        let program = bench.nexus([] as [&str; 0]).get_program().to_owned();
        let script = "for i in $(seq 60); do echo $i > file-with-a-long-name-$i; done";
        let line = format!("ulimit -f 4; exec {} run --changes commit --shell '{script}'", program.display());
        let output = bench.command("bash").args(["-c", &line]).output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stderr(&output));
        assert!(stderr(&output).contains("File too large"), "{}", stderr(&output));
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(read(&bench.workspace.join("file-with-a-long-name-60")), "60\n");
    }
}

#[test]
fn a_layer_that_could_not_be_read_is_reviewed_when_it_can() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    // No command may add the layer's files to the list of what waits: its directory is full of a name that is a directory.
    let child = start(&bench, &bench.workspace, &["--changes", "review"], "echo work > work");
    let layer = fs::read_dir(bench.state.join("layers")).unwrap().next().unwrap().unwrap().path();
    fs::create_dir_all(layer.join("parked.json.new/x")).unwrap();
    let output = end(child);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert!(stderr(&output).contains("neither be committed nor parked"), "{}", stderr(&output));
    for _ in 0..2 {
        assert!(stdout(&bench.run(["changes", "show"])).contains("A work"));
        assert_eq!(bench.run(["run", "--", "true"]).status.code(), Some(0));
    }
    fs::remove_dir_all(layer.join("parked.json.new")).unwrap();
    assert_eq!(bench.run(["changes", "accept"]).status.code(), Some(0));
    assert_eq!(read(&bench.workspace.join("work")), "work\n");
    assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
}

#[test]
fn a_profile_that_wants_to_ask_parks_where_no_user_can_be_asked() {
    for bench in benches() {
        let config = bench.home.join("config/profiles");
        fs::create_dir_all(&config).unwrap();
        fs::write(config.join("careful.yaml"), "changes: ask\n").unwrap();
        for path in [bench.home.join("config"), config.clone(), config.join("careful.yaml")] {
            bench.give(&path);
        }
        let mut command = bench.nexus(["run", "--profile", "careful", "--shell", "echo x > made"]);
        let output = command.env("NEXUS_CONFIG_DIR", bench.home.join("config")).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert!(!bench.workspace.join("made").exists(), "{}: committed without a question", bench.who());
        assert!(stdout(&bench.run(["changes", "show"])).contains("A made"));
    }
}

/// Types into `nexus` while it runs.
fn type_line(child: &mut Child, line: &str) {
    child.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
}

#[test]
fn a_person_who_thinks_holds_no_commit_up() {
    for bench in benches() {
        bench.write("one", "1\n");
        let script = "echo 2 > one; echo x > two";
        assert_eq!(bench.run(["run", "--changes", "review", "--shell", script]).status.code(), Some(0));
        let mut command = bench.nexus(["changes", "accept", "--patch"]);
        let mut asking = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut question = asking.stderr.take().unwrap();
        question.read_exact(&mut [0; 8]).unwrap();
        let output = bench.run(["run", "--changes", "commit", "--shell", "echo y > three"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        type_line(&mut asking, "y\ny\n");
        drop(asking.stdin.take());
        std::io::copy(&mut question, &mut std::io::sink()).unwrap();
        let output = asking.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", bench.who());
        assert_eq!(stdout(&output), "accepted one\naccepted two\nNothing of this run waits any more.\n");
    }
}

/// Writes two files, one with an extended attribute that no file system on a disk with small blocks takes.
const LARGE_ATTRIBUTE: &str = "import os
for name in ('a', 'm', 'z'):
    open(name, 'w').write(name)
os.setxattr('m', 'user.large', b'x' * 60000)
";

#[test]
fn an_attribute_that_fits_on_no_disk_costs_no_other_file() {
    for bench in benches() {
        let there = bench.state.parent().unwrap().join("probe");
        std::fs::write(&there, "").unwrap();
        if rustix::fs::setxattr(&there, "user.large", &vec![b'x'; 60000], rustix::fs::XattrFlags::empty()).is_ok() {
            support::skip::skipped("the file system of the tests takes large attributes");
            return;
        }
        let words = ["run", "--changes", "commit", "--disk", "16M", "--", "python3", "-c", LARGE_ATTRIBUTE];
        let output = bench.run(words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{}: {said}", bench.who());
        assert!(said.contains("\"m\"") || said.contains("upper/m"), "{}: {said}", bench.who());
        assert!(said.contains("the extended attribute \"user.large\""), "{}: {said}", bench.who());
        let shown = bench.run(["changes", "show"]);
        for file in ["A a", "A m", "A z"] {
            assert!(stdout(&shown).contains(file), "{}: {}{}", bench.who(), stdout(&shown), stderr(&shown));
        }
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stdout(&output));
        assert_eq!(bench.run(["changes", "accept", "a", "m", "z"]).status.code(), Some(0), "{}", bench.who());
        for file in ["a", "m", "z"] {
            assert_eq!(read(&bench.workspace.join(file)), file, "{}", bench.who());
        }
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

/// Lets a process that runs write no file beyond so many bytes, as on a disk without room for a larger one.
fn limit_files(bench: &Bench, process: u32, bytes: u64) {
    let mut command = bench.command("prlimit");
    let done = command.args(["--pid", &process.to_string(), &format!("--fsize={bytes}:")]).status().unwrap();
    assert!(done.success(), "{}", bench.who());
}

#[test]
fn a_part_of_a_layer_in_memory_is_never_accepted_as_a_whole() {
    for bench in benches() {
        let large = "precious\n".repeat(40_000);
        bench.write("a", &large);
        bench.write("old/x", "x");
        let script = "cp a b; mv a c; mkdir a; echo new > a/n; echo new > small; mv old/x x; rm -r old; echo last > z";
        let child = start(&bench, &bench.workspace, &["--changes", "commit", "--disk", "32M"], script);
        limit_files(&bench, child.id(), 100_000);
        let output = end(child);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{}: {said}", bench.who());
        assert!(said.contains("File too large"), "{}: {said}", bench.who());
        let listed = stdout(&bench.run(["changes", "list"]));
        assert!(listed.contains("[incomplete]"), "{}: {listed}", bench.who());
        let shown = stdout(&bench.run(["changes", "show"]));
        assert!(shown.contains("only a part of them could be copied"), "{}: {shown}", bench.who());
        let changes: Vec<_> = shown.lines().filter(|line| line.as_bytes().get(1) == Some(&b' ')).collect();
        let new = ["A a/n  4 B", "A small  4 B", "A x  1 B", "A z  5 B"];
        assert!(changes[0].starts_with("T a") && changes[0].contains("only a part"), "{}: {changes:?}", bench.who());
        assert_eq!(changes[1..], new, "{}", bench.who());
        for words in [&["changes", "accept"][..], &["changes", "accept", "--protected"], &["changes", "accept", "."]] {
            let output = bench.run(words);
            assert_eq!(output.status.code(), Some(125), "{} {words:?}: {}", bench.who(), stdout(&output));
            assert!(stderr(&output).contains("only a part of them"), "{}: {}", bench.who(), stderr(&output));
        }
        let output = bench.run(["changes", "accept", "a", "a/n"]);
        assert_eq!(output.status.code(), Some(125), "{}: {}", bench.who(), stdout(&output));
        assert!(stderr(&output).contains("copy it by hand"), "{}: {}", bench.who(), stderr(&output));
        let output = bench.run(["changes", "accept", "small", "x", "z"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        for (file, text) in [("a", large.as_str()), ("old/x", "x"), ("small", "new\n"), ("x", "x"), ("z", "last\n")] {
            assert_eq!(read(&bench.workspace.join(file)), text, "{}: {file}", bench.who());
        }
        assert!(!bench.workspace.join("b").exists() && !bench.workspace.join("c").exists(), "{}", bench.who());
        assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0), "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}

#[test]
fn a_whole_layer_from_memory_waits_as_a_whole() {
    for bench in benches() {
        bench.write("a", "a");
        bench.write("old/x", "x");
        let words = ["run", "--changes", "review", "--disk", "16M", "--shell", "mv a b; rm -r old; echo new > z"];
        assert_eq!(bench.run(words).status.code(), Some(0), "{}", bench.who());
        let listed = stdout(&bench.run(["changes", "list"]));
        assert!(!listed.contains("[incomplete]"), "{}: {listed}", bench.who());
        let output = bench.run(["changes", "accept", "z"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        let output = bench.run(["changes", "accept"]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(read(&bench.workspace.join("b")), "a", "{}", bench.who());
        assert!(!bench.workspace.join("a").exists() && !bench.workspace.join("old").exists(), "{}", bench.who());
        assert!(bench.leftovers().is_empty(), "{}: {:?}", bench.who(), bench.leftovers());
    }
}
