//! Changes outside that have the stamp of the start: by a clock of whole seconds, and in one tick of the kernel.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;
#[path = "../../../tests/support/skip.rs"]
mod skip;

use common::Scene;
use nexus_layer::review::diff::{Choice, DiffOptions};
use nexus_layer::{CommitState, Layer, LayerMode, Rules, Workspace};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// ext4 with inodes of 128 bytes, on a loop device that is gone with the mount namespace of the test's child.
#[test]
fn an_edit_in_the_second_of_the_start_is_a_conflict_where_stamps_are_seconds() {
    if !rustix::process::geteuid().is_root() {
        skip::skipped("only root can mount a loop device");
        return;
    }
    let dir = tempfile::Builder::new().prefix("nexus-clock").tempdir_in("/var/tmp").unwrap();
    let image = dir.path().join("image");
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4", "-I", "128"]).arg(&image).status().unwrap();
    assert!(made.success(), "mke2fs (e2fsprogs) is needed");
    for name in ["mounted", "layers"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let script =
        "mount -o loop \"$0/image\" \"$0/mounted\" || exit 77; exec \"$1\" --exact --ignored --nocapture \"$2\"";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .arg("child_edits_in_the_second_of_the_start")
        .env("NEXUS_TEST_DIR", dir.path())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(77) {
        skip::skipped(&format!("this machine gives no loop device: {text}"));
        return;
    }
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "the child of the test above"]
fn child_edits_in_the_second_of_the_start() {
    let dir = PathBuf::from(std::env::var_os("NEXUS_TEST_DIR").unwrap());
    let ws = dir.join("mounted/ws");
    fs::create_dir(&ws).unwrap();
    let file = ws.join("f");
    // The verdict needs both in one second. A try in which the second ended between them says nothing.
    let tried = (0..100).any(|number| edited_meanwhile(&dir, &ws, &file, &format!("run{number}")));
    assert!(tried, "no start and edit fell into one second");
    let tried = (0..20).any(|number| edited_after_a_part(&dir, &ws, &file, &format!("part{number}")));
    assert!(tried, "no accept and edit fell into one second");
}

/// A person edits a file, without another size, right after a part of it was accepted. Returns whether the edit has the stamp that
/// the accept left; a commit of the rest must take it for an edit all the same.
fn edited_after_a_part(dir: &Path, ws: &Path, file: &Path, run: &str) -> bool {
    let old = (10..50).fold(String::new(), |text, line| format!("{text}{line}\n"));
    let new = old.replace("15\n", "fifteen\n").replace("45\n", "forty-five\n");
    let workspace = Workspace::open(ws).unwrap();
    fs::write(file, &old).unwrap();
    wait_for_seconds(&dir.join("mounted/probe"), fs::metadata(file).unwrap().ctime() + 1);
    let layer = Layer::create(&dir.join("layers"), run, &workspace, LayerMode::Root).unwrap();
    let upper = layer.upper().join("f");
    fs::write(&upper, &new).unwrap();
    // The accept gives the file this time, which no edit has.
    let dated = Command::new("touch").args(["-d", "2020-01-01"]).arg(&upper).status().unwrap();
    assert!(dated.success());
    layer.park(&workspace, &Rules::default()).unwrap();
    // The second begins, so that the accept and the edit fit into it.
    wait_for_seconds(&dir.join("mounted/probe"), fs::metadata(file).unwrap().ctime() + 2);
    let (path, options) = ("f".into(), DiffOptions::default());
    let choice = Choice { path: &path, hunks: &[0], seen: None, options: &options };
    let done = layer.accept_hunks(&workspace, &Rules::default(), &choice).unwrap();
    assert_eq!(done.conflicts, []);
    drop(layer);
    let accepted = fs::metadata(file).unwrap();
    fs::File::options().write(true).open(file).unwrap().write_all(b"X").unwrap();
    let edited = fs::metadata(file).unwrap();
    assert_eq!((edited.size(), edited.ino()), (accepted.size(), accepted.ino()));
    let layer = Layer::open(&dir.join("layers"), run).unwrap();
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    assert!(result.conflicts.iter().any(|conflict| conflict.path == "f".into()), "{result:?}");
    assert!(fs::read_to_string(file).unwrap().starts_with("X0\n"));
    layer.discard().unwrap();
    accepted.ctime() == edited.ctime()
}

/// Waits until the clock of the file system is past a second.
fn wait_for_seconds(probe: &Path, second: i64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while {
        fs::write(probe, "").unwrap();
        fs::metadata(probe).unwrap().ctime() <= second
    } {
        assert!(Instant::now() < deadline, "the clock of the file system stands still");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reports whether the start and the edit had the same stamp; then the edit must be a conflict.
fn edited_meanwhile(dir: &Path, ws: &Path, file: &Path, run: &str) -> bool {
    fs::write(file, "old").unwrap();
    let workspace = Workspace::open(ws).unwrap();
    let layer = Layer::create(&dir.join("layers"), run, &workspace, LayerMode::Root).unwrap();
    assert!(layer.clock().unwrap().equal_is_later);
    fs::write(layer.upper().join("f"), "the run's").unwrap();
    fs::write(file, "the person's").unwrap();
    let edited = fs::metadata(file).unwrap();
    assert_eq!(edited.ctime_nsec(), 0);
    let together = edited.ctime() == layer.clock().unwrap().time.sec;
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    assert!(result.conflicts.iter().any(|conflict| conflict.path == "f".into()), "{result:?}");
    assert_eq!(result.state, CommitState::Parked);
    assert_eq!(fs::read_to_string(file).unwrap(), "the person's");
    layer.discard().unwrap();
    together
}

/// Reports whether a second change always has a later stamp (Linux 6.13 and later).
fn stamps_are_fine(probe: &Path) -> bool {
    let stamp = || {
        fs::write(probe, "").unwrap();
        let meta = fs::metadata(probe).unwrap();
        (meta.ctime(), meta.ctime_nsec())
    };
    (0..20).all(|_| stamp() < stamp())
}

/// The kernel stamps a change with the last tick until a process reads the stamp: a change that follows the start at once must
/// not look older.
#[test]
fn a_change_in_the_tick_of_the_start_is_a_conflict() {
    let mut equal = 0;
    for number in 0..40 {
        let scene = Scene::new(LayerMode::Root, &[common::write("f", "old"), common::write("same", "old")]);
        let layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
        let clock = layer.clock().unwrap().clone();
        fs::write(scene.ws().join("f"), "the person's").unwrap();
        if !stamps_are_fine(&scene.path("probe")) {
            println!(
                "in part: test a_change_in_the_tick_of_the_start_is_a_conflict: the kernel stamps by the tick alone"
            );
            return;
        }
        let edited = fs::metadata(scene.ws().join("f")).unwrap();
        equal += usize::from((edited.ctime(), edited.ctime_nsec()) == (clock.time.sec, i64::from(clock.time.nsec)));
        for name in ["f", "same"] {
            fs::write(layer.upper().join(name), "the run's").unwrap();
        }
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        let conflicts: Vec<_> = result.conflicts.iter().map(|conflict| conflict.path.clone()).collect();
        assert_eq!(conflicts, ["f".into()], "{number}: {result:?}");
    }
    assert!(equal > 0, "no change had the stamp of the start");
}
