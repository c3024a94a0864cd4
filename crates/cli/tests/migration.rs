//! State directories of version 0.1, root's and a user's, under the present program: what waits can be decided, a commit
//! that was killed half-way comes to an end, and nothing is deleted.
//!
//! The fixture is a disk (`fixtures/migration/make.sh` says why), so these tests need root to mount it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use support::{Bench, needs_root, stderr, stdout, wait_until};

/// The path at which the disk was made; the state directories know their workspaces by it.
const MOUNTED: &str = "/var/tmp/nexus-migration-fixture";

/// The user whose files are on the disk.
const USER: u32 = 12345;

/// The mounted disk. One test at a time on this machine, since the path is fixed.
struct Disk {
    _turn: File,
    _image: tempfile::TempDir,
}

impl Disk {
    fn mount() -> Self {
        let turn = File::open("/var/tmp").unwrap();
        flock(&turn, FlockOperation::LockExclusive).unwrap();
        fs::create_dir_all(MOUNTED).unwrap();
        // A test that was killed may have left its disk.
        unmount();
        let image = tempfile::tempdir_in("/var/tmp").unwrap();
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/migration/state-0.1.tar.gz");
        must(Command::new("tar").arg("-xzf").arg(fixture).arg("-C").arg(image.path()));
        let file = image.path().join("disk.img");
        must(Command::new("mount").args(["-o", "loop,noatime"]).arg(file).arg(MOUNTED));
        Self { _turn: turn, _image: image }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount();
        fs::remove_dir(MOUNTED).unwrap();
    }
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
}

fn unmount() {
    let is_there = || fs::read_to_string("/proc/self/mounts").unwrap().contains(MOUNTED);
    wait_until("the end of the mount", Duration::from_secs(20), || {
        !is_there() || Command::new("umount").arg(MOUNTED).output().unwrap().status.success() && !is_there()
    });
}

/// One identity's part of the disk.
struct Old {
    bench: Bench,
}

impl Old {
    fn workspace(&self, name: &str) -> PathBuf {
        self.bench.state.parent().unwrap().join(name)
    }

    /// Runs `nexus` in a workspace of the disk.
    fn run(&self, workspace: &str, words: &[&str]) -> Output {
        self.bench.nexus(words).current_dir(self.workspace(workspace)).output().unwrap()
    }

    fn must(&self, workspace: &str, words: &[&str]) -> String {
        let output = self.run(workspace, words);
        let told = format!("{} {words:?} in {workspace}: {}{}", self.who(), stdout(&output), stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{told}");
        stdout(&output)
    }

    fn who(&self) -> &'static str {
        self.bench.who()
    }

    /// The run of a workspace whose layer has this file.
    fn run_with(&self, workspace: &str, file: &str) -> String {
        let wanted = self.workspace(workspace).display().to_string();
        let layers = fs::read_dir(self.bench.state.join("layers")).unwrap().map(|entry| entry.unwrap().path());
        let mut found = layers.filter(|layer| {
            let note = fs::read_to_string(layer.join("run.json")).unwrap_or_default();
            layer.join(file).exists() && note.contains(&format!("\"{wanted}\""))
        });
        let layer = found.next().unwrap_or_else(|| panic!("{}: no layer of {workspace} has {file}", self.who()));
        layer.file_name().unwrap().to_str().unwrap().to_owned()
    }

    /// Reports whether the run is in the list of waiting ones.
    fn waits(&self, run: &str) -> bool {
        self.must("rest", &["changes", "list", "--json"]).contains(run)
    }

    fn read(&self, workspace: &str, file: &str) -> Option<String> {
        fs::read_to_string(self.workspace(workspace).join(file)).ok()
    }

    /// Finishes what was killed, with the command for it where there is one; returns what was said.
    fn recover(&self) -> String {
        let list = self.run("rest", &["changes", "list"]);
        assert_eq!(list.status.code(), Some(0), "{}: {}", self.who(), stderr(&list));
        let recover = self.run("rest", &["changes", "recover"]);
        [stdout(&list), stderr(&list), stdout(&recover), stderr(&recover)].concat()
    }
}

/// Calls the test for root's part of a fresh disk and for the user's.
fn on_each(test: impl Fn(&Old)) {
    if !needs_root() {
        return;
    }
    for (user, name) in [(None, "root"), (Some(USER), "user")] {
        let _disk = Disk::mount();
        let mut bench = Bench::new(user);
        bench.state = Path::new(MOUNTED).join(name).join("state");
        test(&Old { bench });
    }
}

/// Every file below a directory with its content.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                waiting.push(path.clone());
            }
            all.insert(path.clone(), if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() });
        }
    }
    all
}

#[test]
fn changes_that_wait_since_0_1_are_shown() {
    on_each(|old| {
        let run = old.run_with("parked", "parked.json");
        let shown = old.must("parked", &["changes", "show", "--run", &run]);
        for line in ["M f1", "D f3", "D dir/a", "D gone", "A link", "T f4", "A added", "A whole/z", "D whole/y"] {
            assert!(shown.contains(line), "{}: {line} is missing: {shown}", old.who());
        }
        let diff = old.must("parked", &["changes", "diff", "--run", &run]);
        assert!(diff.contains("-old 1\n+new 1"), "{}: {diff}", old.who());
        assert!(old.waits(&old.run_with("rest", "parked.json")), "{}", old.who());
    });
}

#[test]
fn changes_that_wait_since_0_1_are_accepted() {
    on_each(|old| {
        let run = old.run_with("parked", "parked.json");
        old.must("parked", &["changes", "accept", "--run", &run]);
        let wanted = [
            ("f1", Some("new 1\n")),
            ("f2", Some("new 2\n")),
            ("f3", None),
            ("f4/in", Some("in\n")),
            ("f6", Some("old 6\n")),
            ("link", Some("new 1\n")),
            ("dir/a", None),
            ("dir/deep/c", Some("old c\n")),
            ("gone/x", None),
            ("whole/y", None),
            ("whole/z", Some("z\n")),
            ("added", Some("n\n")),
        ];
        for (name, content) in wanted {
            assert_eq!(old.read("parked", name).as_deref(), content, "{}: {name}", old.who());
        }
        assert!(!old.waits(&run), "{}", old.who());
    });
}

#[test]
fn what_changed_outside_since_0_1_is_not_overwritten() {
    on_each(|old| {
        let run = old.run_with("parked", "parked.json");
        fs::write(old.workspace("parked").join("f1"), "written by a person\n").unwrap();
        let output = old.run("parked", &["changes", "accept", "--run", &run]);
        assert!(!output.status.success(), "{}: {}", old.who(), stdout(&output));
        assert!(stderr(&output).contains("f1"), "{}: {}", old.who(), stderr(&output));
        assert_eq!(old.read("parked", "f1").unwrap(), "written by a person\n", "{}", old.who());
        assert!(old.waits(&run), "{}", old.who());
    });
}

#[test]
fn changes_that_wait_since_0_1_are_rejected() {
    on_each(|old| {
        let run = old.run_with("parked", "parked.json");
        let before = files(&old.workspace("parked"));
        old.must("parked", &["changes", "reject", "--run", &run]);
        assert_eq!(files(&old.workspace("parked")), before, "{}", old.who());
        assert!(!old.waits(&run), "{}", old.who());
    });
}

#[test]
fn the_rest_of_a_commit_of_0_1_is_accepted() {
    on_each(|old| {
        let run = old.run_with("rest", "parked.json");
        old.must("rest", &["changes", "accept", "--protected", "--run", &run]);
        assert_eq!(old.read("rest", ".envrc").unwrap(), "hook\n", "{}", old.who());
        assert_eq!(old.read("rest", ".vscode/tasks.json").unwrap(), "{}\n", "{}", old.who());
        assert_eq!(old.read("rest", "f1").unwrap(), "new 1\n", "{}", old.who());
    });
}

#[test]
fn a_half_done_commit_of_0_1_is_finished_or_named() {
    on_each(|old| {
        let run = old.run_with("half", "journal");
        let layer = old.bench.state.join("layers").join(&run);
        let told = old.recover();
        let is_new = |number: u32| old.read("half", &format!("f{number}")) == Some(format!("new {number}\n"));
        if (1..=6).all(is_new) && old.read("half", "dir/a").is_none() {
            old.must("half", &["run", "--", "true"]);
            return;
        }
        // Where the program does not finish it, it says so, and nothing of it is lost.
        assert!(told.contains(&run), "{}: {told}", old.who());
        for number in 1..=6 {
            let kept = fs::read_to_string(layer.join(format!("upper/f{number}"))).ok();
            let there = is_new(number) || kept == Some(format!("new {number}\n"));
            assert!(there, "{}: the new f{number} is gone: {told}", old.who());
        }
        // A person has taken what is wanted, and gives the rest up.
        old.must("half", &["changes", "reject", "--run", &run]);
        old.must("half", &["run", "--", "true"]);
    });
}

#[test]
fn an_edit_after_a_half_done_commit_of_0_1_stays() {
    on_each(|old| {
        let run = old.run_with("half", "journal");
        let new = |number: u32| old.read("half", &format!("f{number}")) == Some(format!("new {number}\n"));
        let late = (1..=6).find(|number| !new(*number)).unwrap();
        let file = old.workspace("half").join(format!("f{late}"));
        fs::write(&file, "written by a person\n").unwrap();
        let told = old.recover();
        assert_eq!(fs::read_to_string(&file).unwrap(), "written by a person\n", "{}: {told}", old.who());
        assert!(told.contains("half") || told.contains(&run), "{}: nothing was said: {told}", old.who());
    });
}

#[test]
fn the_work_of_runs_of_0_1_that_were_killed_waits() {
    on_each(|old| {
        let runs = ["killed", "detached"].map(|name| (name, old.run_with(name, "upper/f1")));
        old.recover();
        for (name, run) in runs {
            assert!(old.waits(&run), "{}: the run in {name} is gone", old.who());
            old.must(name, &["changes", "accept", "--run", &run]);
            assert_eq!(old.read(name, "f1").unwrap(), "unfinished\n", "{}: {name}", old.who());
        }
    });
}

#[test]
fn a_detached_sandbox_of_0_1_is_said_to_be_lost() {
    on_each(|old| {
        let told = old.must("rest", &["ps", "--all"]);
        let line = told.lines().find(|line| line.contains("fixture"));
        assert!(line.is_some_and(|line| line.contains("lost")), "{}: {told}", old.who());
    });
}

#[test]
fn receipts_of_0_1_are_genuine() {
    on_each(|old| {
        let receipts = fs::read_dir(old.bench.state.join("receipts")).unwrap();
        let receipts: Vec<PathBuf> = receipts
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .collect();
        assert_eq!(receipts.len(), 2, "{}", old.who());
        for path in receipts {
            old.must("rest", &["receipt", "verify", path.to_str().unwrap()]);
        }
    });
}

#[test]
fn layers_of_a_newer_version_are_refused_untouched() {
    on_each(|old| {
        let newer = [("parked", "parked.json"), ("half", "journal")].map(|(workspace, file)| {
            let run = old.run_with(workspace, file);
            let layer = old.bench.state.join("layers").join(&run);
            let text = fs::read_to_string(layer.join(file)).unwrap();
            assert!(text.contains("\"version\":1,"), "{text}");
            fs::write(layer.join(file), text.replacen("\"version\":1,", "\"version\":99,", 1)).unwrap();
            (workspace, run, layer)
        });
        let state = || newer.each_ref().map(|(workspace, _, layer)| (files(&old.workspace(workspace)), files(layer)));
        let before = state();
        for (workspace, run, _) in &newer {
            for words in [&["changes", "list"][..], &["changes", "recover"], &["changes", "accept", "--run", run]] {
                let output = old.run(workspace, words);
                let refused = words[1] != "accept" || !output.status.success();
                assert!(refused, "{}: {words:?}: {}", old.who(), stdout(&output));
            }
        }
        old.run("rest", &["run", "--", "true"]);
        assert_eq!(state(), before, "{}", old.who());
    });
}
