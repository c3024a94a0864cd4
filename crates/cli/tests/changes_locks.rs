//! Locks: commits wait for commits, a start waits for a commit, and no command waits for a stranger.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use support::{Bench, benches, needs_root, stderr, stdout, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// Takes the lock that a commit to this directory takes.
fn take_lock(bench: &Bench, directory: &Path) -> (PathBuf, File) {
    lock(bench, directory, FlockOperation::LockExclusive)
}

fn lock(bench: &Bench, directory: &Path, how: FlockOperation) -> (PathBuf, File) {
    let found = rustix::fs::statx(CWD, directory, AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME).unwrap();
    let (seconds, nanos) = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    let path = bench.state.join("locks").join(format!("{:x}-{seconds:x}-{nanos:x}-0-0", found.stx_ino));
    let file = File::options().write(true).create(true).truncate(false).open(&path).unwrap();
    bench.give(&path);
    rustix::fs::flock(&file, how).unwrap();
    (path, file)
}

/// Waits until the process has this file open.
fn wait_for_open(child: &Child, path: &Path) {
    let folder = format!("/proc/{}/fd", child.id());
    let has_it = || {
        let entries = fs::read_dir(&folder).unwrap().flatten();
        entries.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == path)
    };
    wait_until("the wait for the lock", PATIENCE, has_it);
}

#[test]
fn a_commit_waits_for_the_lock_of_another_one() {
    for bench in benches() {
        // A commit holds the lock alone; sandboxes that are being set up hold it together, and no commit among them.
        for how in [FlockOperation::LockExclusive, FlockOperation::LockShared] {
            fs::remove_file(bench.workspace.join("work")).ok();
            let mut command =
                bench.nexus(["run", "--stdin", "--shell", "echo work > work; echo up; read line; exit 0"]);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
            let (path, lock) = lock(&bench, &bench.workspace, how);
            drop(child.stdin.take());
            wait_for_open(&child, &path);
            // Long enough for a commit that does not wait.
            let watched = Instant::now() + Duration::from_millis(300);
            while Instant::now() < watched {
                assert!(!bench.workspace.join("work").exists(), "{}: two at once: {how:?}", bench.who());
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(lock);
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
            assert!(bench.workspace.join("work").exists());
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}

#[test]
fn a_run_that_starts_during_a_commit_sees_all_of_it() {
    for bench in benches() {
        // The state directory is made by the first run.
        assert_eq!(bench.run(["run", "--", "true"]).status.code(), Some(0));
        for flags in [&["--changes", "commit"][..], &["--direct"], &["--disk", "4M"]] {
            bench.write("file", "old\n");
            let (path, lock) = take_lock(&bench, &bench.workspace);
            let mut command = bench.nexus(["run"]);
            command.args(flags).args(["--", "cat", "file"]);
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            wait_for_open(&child, &path);
            bench.write("file", "new\n");
            drop(lock);
            let output = child.wait_with_output().unwrap();
            assert_eq!(stdout(&output), "new\n", "{}: {flags:?}: {}", bench.who(), stderr(&output));
            assert!(bench.leftovers().is_empty(), "{:?}", bench.leftovers());
        }
    }
}

#[test]
fn what_a_run_changed_and_its_receipt_reach_the_disk() {
    for bench in benches() {
        let log = bench.home.join("calls");
        let synced = |arguments: &[&str]| {
            let nexus = bench.nexus([] as [&str; 0]).get_program().to_owned();
            let mut traced = bench.command("strace");
            traced.args(["-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o"]).arg(&log);
            let output = traced.arg(nexus).args(arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
            let text = fs::read_to_string(&log).unwrap();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let at =
            |calls: &[String], part: &str| calls.iter().position(|call| call.contains("sync(") && call.contains(part));
        let calls = synced(&["run", "--changes", "commit", "--shell", "echo x > made"]);
        let decided = calls.iter().position(|call| call.contains("rename") && call.contains("\"journal\""));
        let decided = decided.unwrap_or_else(|| panic!("no commit point: {calls:#?}"));
        for part in ["/state/runs/", "/state/runs>", "/run.json>"] {
            assert!(at(&calls, part).is_some_and(|place| place < decided), "{}: {part}: {calls:#?}", bench.who());
        }
        for part in ["/state/receipts/chain>", ".json>", "/state/receipts>"] {
            assert!(at(&calls[decided..], part).is_some(), "{}: {part}: {calls:#?}", bench.who());
        }
        let calls = synced(&["run", "--changes", "review", "--shell", "echo y > made"]);
        for part in ["/run.json>", "/state/receipts/chain>", "/state/receipts>"] {
            assert!(at(&calls, part).is_some(), "{}: {part}: {calls:#?}", bench.who());
        }
        // A run that leaves nothing waits for no disk.
        let calls = synced(&["run", "--", "true"]);
        assert!(calls.iter().all(|call| !call.contains("sync(")), "{}: {calls:#?}", bench.who());
    }
}

#[test]
fn a_directory_of_sandboxes_that_others_can_open_is_refused() {
    for bench in benches() {
        bench.detach(&["--name", "x", "--", "sleep", "600"]);
        let sessions = bench.state.join("sessions");
        fs::set_permissions(&sessions, fs::Permissions::from_mode(0o755)).unwrap();
        for arguments in [&["ps"][..], &["exec", "x", "--", "true"], &["stop", "x"]] {
            let output = bench.run(arguments);
            assert_eq!(output.status.code(), Some(125), "{}: {arguments:?}", bench.who());
            assert!(stderr(&output).contains("is not a directory that only you can open"), "{}", stderr(&output));
        }
        fs::set_permissions(&sessions, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(bench.run(["rm", "-f", "x"]).status.code(), Some(0));
    }
}

#[test]
fn a_supervisor_of_another_user_is_not_talked_to() {
    if !needs_root() {
        return;
    }
    let bench = Bench::new(None);
    bench.detach(&["--name", "x", "--", "sleep", "600"]);
    let id = bench.session("x")["id"].as_str().unwrap().to_owned();
    let (socket, aside) = (bench.session_folder(&id).join("socket"), bench.session_folder(&id).join("aside"));
    fs::rename(&socket, &aside).unwrap();
    // The kernel notes who listens when listen(2) is called.
    let script = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.bind(sys.argv[1])\n\
                  os.seteuid(int(sys.argv[2]))\ns.listen(8)\nos.write(1, b'up\\n')\nos.close(1)\n\
                  while True:\n c = s.accept()[0]\n if c.recv(1): os.write(2, b'talked\\n')\n c.close()";
    let mut command = bench.command("python3");
    command.args(["-c", script]).arg(&socket).arg(support::user().to_string());
    let mut other = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    other.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    let output = bench
        .command("timeout")
        .arg("20")
        .arg(bench.nexus([] as [&str; 0]).get_program())
        .args(["exec", "x", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert!(stderr(&output).contains("another user's"), "{}", stderr(&output));
    other.kill().unwrap();
    let said = stderr(&other.wait_with_output().unwrap());
    assert_eq!(said, "", "something was said to a stranger");
    fs::rename(&aside, &socket).unwrap();
    assert_eq!(bench.run(["rm", "-f", "x"]).status.code(), Some(0));
}

#[test]
fn a_signal_ends_a_nexus_that_still_looks_at_the_changes() {
    for bench in benches() {
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
            let script = "echo work > made; echo up; read line; exit 0";
            let mut command = bench.nexus(["run", "--stdin", "--changes", "commit", "--shell", script]);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
            let (_, lock) = take_lock(&bench, &bench.workspace);
            drop(child.stdin.take());
            let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
            let line = said.next().unwrap().unwrap();
            assert!(line.contains("still looks at what it changed"), "{}: {line}", bench.who());
            kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), signal).unwrap();
            let ended = Instant::now() + PATIENCE;
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if Instant::now() > ended {
                    child.kill().unwrap();
                    panic!("{}: it waits on", bench.who());
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            assert_eq!(status.code(), Some(code), "{}", bench.who());
            let line = said.next().unwrap().unwrap();
            assert!(line.contains("parks the changes"), "{}: {line}", bench.who());
            assert!(!bench.workspace.join("made").exists(), "{}", bench.who());
            drop(lock);
            let shown = bench.run(["changes", "show"]);
            assert!(stdout(&shown).contains("A made"), "{}: {}{}", bench.who(), stdout(&shown), stderr(&shown));
            assert_eq!(bench.run(["changes", "reject"]).status.code(), Some(0), "{}", bench.who());
        }
    }
}

#[test]
fn what_another_command_decides_about_is_named_as_that() {
    for bench in benches() {
        let (report, _) = bench.json(["--changes", "review", "--shell", "echo x > made"]);
        let run = report["run_id"].as_str().unwrap();
        let (path, lock) = take_lock(&bench, &bench.workspace);
        let mut accept = bench.nexus(["changes", "accept"]);
        let accept = accept.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_open(&accept, &path);
        let listed = stdout(&bench.run(["changes", "list"]));
        assert!(listed.contains(run) && listed.contains("[another command is at work on it]"), "{listed}");
        for action in ["show", "diff", "accept", "reject"] {
            for named in [&["--run", run][..], &[]] {
                let output = bench.run(["changes", action].iter().chain(named));
                assert_eq!(output.status.code(), Some(125), "{}: {action}: {}", bench.who(), stderr(&output));
                assert!(stderr(&output).contains("another command is at work"), "{action}: {}", stderr(&output));
            }
        }
        drop(lock);
        let output = accept.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(fs::read_to_string(bench.workspace.join("made")).unwrap(), "x\n");
        assert_eq!(stdout(&bench.run(["changes", "list"])), "No changes wait for a decision.\n", "{}", bench.who());
    }
}
