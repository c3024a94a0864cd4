//! Undos of runs of which no state of the end is kept.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use common::undoing::{Scene, whole};
use nexus_facility::checkpoints::{CheckpointError, UndoRequest, clock};
use nexus_model::RunId;
use nexus_snapshot::{FsTime, SnapshotError};
use std::fs::{self, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt as _;

/// Notes the end of a run whose state could not be kept, after the clock of time stamps went on. A time stamp can be ahead of it by some ticks.
fn ends_without_state(scene: &Scene, run: RunId) {
    let nanoseconds = |time: FsTime| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let last = nanoseconds(clock());
    while nanoseconds(clock()) < last + 50_000_000 {
        std::thread::yield_now();
    }
    let end = scene.checkpoints.end(run, scene.root.as_fd(), clock(), None, &mut |_, _| Err(SnapshotError::Stopped));
    assert_eq!(end.unwrap_err().code(), "snapshot_stopped");
}

/// A run that changed some files, and a person who did since.
fn edited() -> (Scene, RunId) {
    let scene = Scene::new();
    for name in ["both", "run", "gone", "d/run", "d/mine"] {
        scene.put(name, "old\n");
    }
    fs::create_dir(scene.tree().join("closed")).unwrap();
    let run = scene.take();
    for name in ["both", "run", "d/run", "made/run", "made/deep/run", "whole/run"] {
        scene.put(name, "by the run\n");
    }
    fs::remove_file(scene.tree().join("gone")).unwrap();
    fs::set_permissions(scene.tree().join("closed"), Permissions::from_mode(0o700)).unwrap();
    ends_without_state(&scene, run);
    for name in ["both", "d/mine", "made/mine", "later"] {
        scene.put(name, "mine\n");
    }
    fs::create_dir(scene.tree().join("empty")).unwrap();
    fs::set_permissions(scene.tree().join("closed"), Permissions::from_mode(0o711)).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, scene.tree().join("fifo"), mode).unwrap();
    (scene, run)
}

fn check_edited(scene: &Scene) {
    for (name, content) in [
        ("both", "mine\n"),
        ("d/mine", "mine\n"),
        ("made/mine", "mine\n"),
        ("later", "mine\n"),
        ("run", "old\n"),
        ("gone", "old\n"),
        ("d/run", "old\n"),
        ("made/run", ""),
    ] {
        assert_eq!(scene.text(name), content, "{name}");
    }
    let is_there = |name: &str| fs::symlink_metadata(scene.tree().join(name)).is_ok();
    assert!(is_there("empty") && is_there("fifo"), "what came since stays");
    assert!(!is_there("made/deep") && !is_there("whole"), "what the run made went");
    assert_eq!(fs::metadata(scene.tree().join("closed")).unwrap().permissions().mode() & 0o777, 0o711);
}

#[test]
fn what_was_changed_after_a_run_without_a_state_of_its_end_stays() {
    let (scene, run) = edited();
    let done = scene.undo(run, &UndoRequest::default()).unwrap();
    let left: Vec<_> = done.applied.left.iter().map(|left| String::from_utf8_lossy(&left.path).into_owned()).collect();
    assert_eq!(left, ["both", "closed", "d/mine", "empty", "later", "made/mine"]);
    check_edited(&scene);
    // Another undo changes nothing.
    let before = whole(&scene.tree());
    scene.undo(run, &UndoRequest::default()).unwrap();
    assert_eq!(whole(&scene.tree()), before);
    scene.undo(run, &UndoRequest { overwrites: true, ..UndoRequest::default() }).unwrap();
    assert_eq!(
        (scene.text("both"), scene.text("later"), scene.text("d/mine")),
        ("old\n".into(), String::new(), "old\n".into())
    );
    assert!(!scene.tree().join("made").exists() && !scene.tree().join("empty").exists());
}

#[test]
fn an_undo_without_a_state_of_the_end_that_is_cut_off_leaves_the_same() {
    for after in 0..60 {
        let (scene, run) = edited();
        let mut left = after;
        let cut_off = scene.checkpoints.undo(run, scene.root.as_fd(), &UndoRequest::default(), &mut || {
            left = usize::checked_sub(left, 1).ok_or_else(|| SnapshotError::Store(std::io::Error::other("cut off")))?;
            Ok(())
        });
        if cut_off.is_ok() {
            assert!(after > 8, "cut off {after} times");
            return;
        }
        let done = scene.undo(run, &UndoRequest::default()).unwrap();
        assert!(done.went_on.is_none_or(|went_on| went_on == run));
        check_edited(&scene);
    }
    panic!("the undo never came to its end");
}

#[test]
fn an_undo_of_a_run_whose_end_is_not_known_has_to_be_asked_for() {
    let scene = Scene::new();
    scene.put("f", "old\n");
    let run = scene.take();
    scene.put("f", "by the run\n");
    let error = scene.undo(run, &UndoRequest::default()).unwrap_err();
    assert!(matches!(error, CheckpointError::EndUnknown { .. }), "{error}");
    assert_eq!(scene.text("f"), "by the run\n", "nothing was changed");
    scene.undo(run, &UndoRequest { overwrites: true, ..UndoRequest::default() }).unwrap();
    assert_eq!(scene.text("f"), "old\n");
}
