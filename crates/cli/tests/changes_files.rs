//! Something else stands in place of a file of the state directory: it is named, is waited for by no command, stops no run elsewhere,
//! deletes nothing, and `reject` still removes the layer.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::fs::{AtFlags, CWD, Mode, StatxFlags};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use support::{Bench, benches, report, stderr, stdout, wait_until};

/// A command that takes longer waits for something that no process holds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Things that may stand in place of a file.
const THINGS: [&str; 7] = ["directory", "fifo", "link", "dangling", "sparse", "cut", "nonsense"];

/// Puts something in place of a file.
fn put(bench: &Bench, path: &Path, thing: &str) {
    let text = fs::read(path).unwrap_or_default();
    fs::remove_file(path).ok();
    match thing {
        "directory" => {
            fs::create_dir(path).unwrap();
            fs::write(path.join("inside"), "x").unwrap();
            bench.give(&path.join("inside"));
        }
        "fifo" => rustix::fs::mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap(),
        "link" => symlink(precious(bench), path).unwrap(),
        "dangling" => symlink(bench.base.path().join("nowhere"), path).unwrap(),
        "sparse" => fs::File::create(path).unwrap().set_len(1 << 42).unwrap(),
        "cut" => fs::write(path, &text[..text.len() / 2]).unwrap(),
        _ => fs::write(path, "[{\"nonsense\": 1}]").unwrap(),
    }
    bench.give(path);
}

/// A file that a link leads to.
fn precious(bench: &Bench) -> PathBuf {
    bench.home.join("precious")
}

/// Runs a command in a directory to its end, which must come soon.
fn nexus(bench: &Bench, directory: &Path, arguments: &[&str]) -> Output {
    let mut command = bench.nexus(arguments);
    command.current_dir(directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_until(&format!("the end of {arguments:?}"), PATIENCE, || child.try_wait().unwrap().is_some());
    child.wait_with_output().unwrap()
}

/// A bench with a second directory, and the file that nothing may touch.
fn scene(mut bench: Bench) -> (Bench, PathBuf) {
    let elsewhere = bench.base.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    bench.give(&elsewhere);
    fs::write(precious(&bench), "precious").unwrap();
    bench.give(&precious(&bench));
    bench.workspace = bench.workspace.canonicalize().unwrap();
    (bench, elsewhere)
}

/// Parks a run and returns its id.
fn parked(bench: &Bench) -> String {
    let output = bench.run(["run", "--json", "--changes", "review", "--shell", "echo x > f"]);
    report(&output)["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn what_stands_in_place_of_a_layers_file_is_rejected() {
    for bench in benches() {
        let (bench, elsewhere) = scene(bench);
        for file in ["run.json", "parked.json", "journal", "journal.done", "rejected.json", "ours.json"] {
            for thing in THINGS {
                let (who, run) = (format!("{}: a {thing} as {file}", bench.who()), parked(&bench));
                let layer = bench.state.join("layers").join(&run);
                put(&bench, &layer.join(file), thing);
                let output = nexus(&bench, &elsewhere, &["run", "--", "true"]);
                assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
                let output = nexus(&bench, &elsewhere, &["changes", "list"]);
                assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
                let told = stdout(&output) + &stderr(&output);
                assert!(told.contains(&run), "{who}: {told}");
                let shown = nexus(&bench, &bench.workspace, &["changes", "show", "--run", &run]);
                assert_eq!(shown.status.code(), Some(125), "{who}: {}", stdout(&shown));
                assert!(!stderr(&shown).contains("precious"), "{who}: {}", stderr(&shown));
                assert_eq!(fs::read_to_string(layer.join("upper/f")).unwrap(), "x\n", "{who}");
                let output = nexus(&bench, &bench.workspace, &["changes", "reject", "--run", &run]);
                assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
                assert!(bench.leftovers().is_empty(), "{who}: {:?}", bench.leftovers());
                assert_eq!(fs::read_to_string(precious(&bench)).unwrap(), "precious", "{who}");
                assert_eq!(fs::read_dir(&bench.workspace).unwrap().count(), 0, "{who}");
            }
        }
    }
}

#[test]
fn what_stands_in_place_of_a_record_stops_no_run() {
    for bench in benches() {
        let (bench, elsewhere) = scene(bench);
        assert!(bench.run(["run", "--", "true"]).status.success());
        for thing in THINGS {
            let who = format!("{}: a {thing}", bench.who());
            let (run, waiting) = ("0199d3c1-0000-7000-8000-0123456789ab", parked(&bench));
            let record = bench.state.join("runs").join(run);
            put(&bench, &record, thing);
            put(&bench, &bench.state.join("locks/1-1-1-0-0"), thing);
            let output = nexus(&bench, &elsewhere, &["run", "--", "true"]);
            assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
            if thing == "directory" {
                assert!(stderr(&output).contains(record.to_str().unwrap()), "{who}: {}", stderr(&output));
                fs::remove_dir_all(&record).unwrap();
            }
            assert!(!record.exists() && !record.is_symlink(), "{who}");
            let output = nexus(&bench, &bench.workspace, &["changes", "reject", "--run", &waiting]);
            assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
            let lock = bench.state.join("locks/1-1-1-0-0");
            fs::remove_file(&lock).or_else(|_| fs::remove_dir_all(&lock)).ok();
            assert_eq!(fs::read_to_string(precious(&bench)).unwrap(), "precious", "{who}");
            assert!(!bench.base.path().join("nowhere").exists(), "{who}");
        }
    }
}

/// Returns damaged forms of the bytes of a file.
fn damaged(text: &[u8]) -> Vec<Vec<u8>> {
    let stride = 1 + text.len() / 25;
    let cut = (0..text.len()).step_by(stride).map(|at| text[..at].to_vec());
    let turned = (0..text.len()).step_by(stride).zip([1, 2, 0x20, 0x80].into_iter().cycle()).map(|(at, mask)| {
        let mut bytes = text.to_vec();
        bytes[at] ^= mask;
        bytes
    });
    let others = ["null", "{}", "[]", "\0\0\0"].map(|text| text.as_bytes().to_vec());
    cut.chain(turned).chain(others).collect()
}

#[test]
fn a_damaged_note_is_named_or_used_and_rejected() {
    for bench in benches() {
        let (bench, _) = scene(bench);
        let first = parked(&bench);
        let count = damaged(&fs::read(bench.state.join("layers").join(&first).join("run.json")).unwrap()).len();
        assert!(nexus(&bench, &bench.workspace, &["changes", "reject", "--run", &first]).status.success());
        for nth in 0..count {
            let run = parked(&bench);
            let note = bench.state.join("layers").join(&run).join("run.json");
            let bytes = damaged(&fs::read(&note).unwrap()).into_iter().nth(nth).unwrap_or_default();
            fs::write(&note, &bytes).unwrap();
            let who = format!("{}: {}", bench.who(), String::from_utf8_lossy(&bytes));
            let output = nexus(&bench, &bench.workspace, &["changes", "list"]);
            let told = stdout(&output) + &stderr(&output);
            assert!(output.status.success() && told.contains(&run), "{who}: {told}");
            let output = nexus(&bench, &bench.workspace, &["changes", "show", "--run", &run]);
            assert!(matches!(output.status.code(), Some(0 | 125)), "{who}: {}", stderr(&output));
            assert_eq!(fs::read_to_string(note.with_file_name("upper").join("f")).unwrap(), "x\n", "{who}");
            let output = nexus(&bench, &bench.workspace, &["changes", "reject", "--run", &run]);
            assert!(output.status.success(), "{who}: {}", stderr(&output));
            assert!(bench.leftovers().is_empty(), "{who}: {:?}", bench.leftovers());
        }
    }
}

#[test]
fn a_record_that_names_another_run_kills_nothing() {
    for bench in benches() {
        let (bench, _) = scene(bench);
        let mut child = bench.nexus(["run", "--stdin", "--shell", "echo up; read line; echo end"]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let runs = bench.state.join("runs");
        let record = || fs::read_dir(&runs).ok().and_then(|mut all| all.next()).map(|one| one.unwrap().path());
        let mut line = [0; 3];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let other = runs.join("0199d3c1-0000-7000-8000-0123456789ab");
        fs::copy(record().unwrap(), &other).unwrap();
        bench.give(&other);
        let output = nexus(&bench, &bench.workspace, &["changes", "list"]);
        assert!(output.status.success() && !other.exists(), "{}: {}", bench.who(), stderr(&output));
        drop(child.stdin.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}: {}", bench.who(), stderr(&output));
        assert_eq!(stdout(&output), "end\n", "{}: the run was killed", bench.who());
    }
}

/// The path of the lock that a commit to a directory takes.
fn lock_of(bench: &Bench, directory: &Path) -> PathBuf {
    let found = rustix::fs::statx(CWD, directory, AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME).unwrap();
    let (seconds, nanos) = (found.stx_btime.tv_sec, found.stx_btime.tv_nsec);
    bench.state.join("locks").join(format!("{:x}-{seconds:x}-{nanos:x}-0-0", found.stx_ino))
}

#[test]
fn what_stands_in_place_of_a_lock_is_named_and_parks() {
    for bench in benches() {
        let (bench, _) = scene(bench);
        assert!(bench.run(["run", "--", "true"]).status.success());
        for thing in ["directory", "fifo", "link", "dangling"] {
            let who = format!("{}: a {thing}", bench.who());
            let run = parked(&bench);
            let lock = lock_of(&bench, &bench.workspace);
            put(&bench, &lock, thing);
            let output = nexus(&bench, &bench.workspace, &["changes", "accept", "--run", &run]);
            assert_eq!(output.status.code(), Some(125), "{who}: {}", stdout(&output));
            assert!(stderr(&output).contains(lock.to_str().unwrap()), "{who}: {}", stderr(&output));
            assert_eq!(fs::read_dir(&bench.workspace).unwrap().count(), 0, "{who}");
            assert!(!bench.base.path().join("nowhere").exists(), "{who}: a link was followed");
            fs::remove_file(&lock).or_else(|_| fs::remove_dir_all(&lock)).unwrap();
            let output = nexus(&bench, &bench.workspace, &["changes", "accept", "--run", &run]);
            assert_eq!(output.status.code(), Some(0), "{who}: {}", stderr(&output));
            assert_eq!(fs::read_to_string(bench.workspace.join("f")).unwrap(), "x\n");
            fs::remove_file(bench.workspace.join("f")).unwrap();
        }
    }
}
