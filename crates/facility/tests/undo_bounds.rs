//! Bounds of the states around a run: large files, files with holes, many files, and a caller who asks for an end.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod common;

use common::undoing::Scene;
use nexus_facility::checkpoints::{Most, Subject, UndoRequest, clock};
use nexus_model::RunId;
use nexus_snapshot::SnapshotError;
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_checkpoint_above_the_bound_is_refused_and_one_of_known_files_is_not() {
    let scene = Scene::new();
    for at in 0..5 {
        scene.put(&format!("{at}"), "12345678\n");
    }
    std::thread::sleep(std::time::Duration::from_millis(150));
    let take = |most: Option<Most>| {
        let subject = Subject {
            run: RunId::new(),
            workspace: scene.tree().as_path().into(),
            directory: "d".to_owned(),
            command: Vec::new(),
        };
        scene.checkpoints.take(subject, scene.root.as_fd(), most, &mut |_, _| Ok(()))
    };
    for (files, bytes) in [(4, 1 << 20), (100, 44)] {
        let error = take(Some(Most { files, bytes, apparent: u64::MAX })).unwrap_err();
        assert_eq!(error.code(), "snapshot_too_much", "{error}");
    }
    assert_eq!(scene.checkpoints.runs().unwrap().0.len(), 0, "nothing was recorded");
    let apparent = take(Some(Most { files: 5, bytes: 45, apparent: 44 })).unwrap_err();
    assert!(apparent.to_string().contains("at \"4\""), "{apparent}");
    take(Some(Most { files: 5, bytes: 45, apparent: 45 })).unwrap();
    take(Some(Most { files: 0, bytes: 0, apparent: 0 })).unwrap();
}

#[test]
fn a_large_hole_is_neither_read_nor_written() {
    const GIB: u64 = 1 << 30;
    let scene = Scene::new();
    let stored = |name: &str| fs::metadata(scene.tree().join(name)).unwrap().blocks() * 512;
    let sparse = |name: &str, size: u64, at: u64| {
        let file = File::create(scene.tree().join(name)).unwrap();
        file.set_len(size).unwrap();
        file.write_all_at(b"text", at).unwrap();
    };
    sparse("before", 40 * GIB + 5, 17 * GIB);
    let start = Instant::now();
    let run = scene.take();
    sparse("before", 30 * GIB, 9 * GIB);
    sparse("made", 40 * GIB, 0);
    let most = Some(Most { files: 10, bytes: 64 << 20, apparent: 100 * GIB });
    scene.checkpoints.end(run, scene.root.as_fd(), clock(), most, &mut |_, _| Ok(())).unwrap();
    let done = scene.undo(run, &UndoRequest { most, ..UndoRequest::default() }).unwrap();
    // To read one of these files takes longer.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!((done.applied.left, done.applied.aside), (vec![], vec![]));
    assert!(!scene.tree().join("made").exists());
    assert_eq!(fs::metadata(scene.tree().join("before")).unwrap().len(), 40 * GIB + 5);
    assert!(stored("before") < 32 << 20, "{} bytes are on the disk", stored("before"));
    let mut text = [0; 6];
    File::open(scene.tree().join("before")).unwrap().read_exact_at(&mut text, 17 * GIB - 1).unwrap();
    assert_eq!(&text, b"\0text\0");
}

#[test]
fn a_file_that_is_larger_than_any_is_left_out_unread() {
    let scene = Scene::new();
    let run = scene.take();
    File::create(scene.tree().join("endless")).unwrap().set_len((2 << 40) + 1).unwrap();
    let mut pieces = 0;
    let ended = scene.checkpoints.end(run, scene.root.as_fd(), clock(), None, &mut |_, _| {
        pieces += 1;
        Ok(())
    });
    let (record, unkept) = ended.unwrap();
    assert!(record.end.is_some_and(|end| end.left_out_count == 1), "it is left out");
    assert_eq!((unkept[0].path.as_slice(), unkept[0].why), (&b"endless"[..], "it is too large"));
    assert_eq!(pieces, 0, "nothing of it was read");
    let done = scene.undo(run, &UndoRequest::default()).unwrap();
    assert!(done.applied.left.iter().any(|left| left.path == b"endless" && left.why.contains("too large")));
    assert!(scene.tree().join("endless").exists());
}

#[test]
fn a_tree_that_lies_too_deep_is_left_out_and_the_rest_goes_back() {
    // The program has the stack of a first thread.
    std::thread::Builder::new().stack_size(8 << 20).spawn(a_deep_tree_is_left_out).unwrap().join().unwrap();
}

fn a_deep_tree_is_left_out() {
    let scene = Scene::new();
    scene.put("f", "old\n");
    let run = scene.take();
    scene.put("f", "by the run\n");
    scene.put("made/run", "by the run\n");
    let mut dir = openat(&scene.root, ".", OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..300 {
        mkdirat(&dir, "d", Mode::RWXU).unwrap();
        dir = openat(&dir, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let end = scene.checkpoints.end(run, scene.root.as_fd(), clock(), None, &mut |_, _| Ok(()));
    let (_, unkept) = end.unwrap();
    assert_eq!((unkept.len(), unkept[0].why), (1, "it lies too deep"));
    scene.put("later", "mine\n");
    let done = scene.undo(run, &UndoRequest::default()).unwrap();
    let left: Vec<_> = done.applied.left.iter().map(|left| (left.path.len(), left.why.as_str())).collect();
    assert_eq!(left, [(unkept[0].path.len(), "no state can keep it: it lies too deep")]);
    assert_eq!(done.applied.aside, []);
    assert_eq!((scene.text("f"), scene.text("later")), ("old\n".to_owned(), "mine\n".to_owned()));
    assert!(!scene.tree().join("made").exists());
    // Without it nothing is left to name.
    fs::remove_dir_all(scene.tree().join("d")).unwrap();
    assert_eq!(scene.undo(run, &UndoRequest::default()).unwrap().applied.left, []);
    assert_eq!(scene.text("later"), "mine\n");
}

#[test]
fn the_end_of_a_run_may_have_so_much_more_than_was_there() {
    let scene = Scene::new();
    for at in 0..4 {
        scene.put(&format!("{at}"), "1234567890");
    }
    let run = scene.take();
    let end = |files: u64, bytes: u64, apparent: u64| {
        let most = Some(Most { files, bytes, apparent });
        scene.checkpoints.end(run, scene.root.as_fd(), clock(), most, &mut |_, _| Ok(())).map(drop)
    };
    let undo = |most: Most| scene.undo(run, &UndoRequest { most: Some(most), ..UndoRequest::default() });
    for at in 0..6 {
        scene.put(&format!("{at}"), "abcdefghij");
    }
    for (files, bytes, apparent) in [(1, 100, 100), (100, 19, 100), (100, 100, 19)] {
        let error = end(files, bytes, apparent).unwrap_err();
        assert!(error.code() == "snapshot_too_much" && error.to_string().contains("at \"5\""), "{error}");
        let error = undo(Most { files, bytes, apparent }).unwrap_err();
        assert!(error.code() == "snapshot_too_much" && error.to_string().contains("at \"5\""), "{error}");
    }
    assert_eq!(scene.text("0"), "abcdefghij", "nothing was undone");
    end(2, 20, 20).unwrap();
    undo(Most { files: 2, bytes: 20, apparent: 20 }).unwrap();
    assert_eq!((scene.text("0"), scene.text("5")), ("1234567890".to_owned(), String::new()));
}

#[test]
fn a_state_ends_when_it_is_asked_to_also_in_the_middle_of_a_file() {
    let scene = Scene::new();
    let run = scene.take();
    fs::write(scene.tree().join("large"), vec![7; 40 << 20]).unwrap();
    let mut calls = 0;
    let ended = scene.checkpoints.end(run, scene.root.as_fd(), clock(), None, &mut |entries, _| {
        calls += 1;
        if entries == 0 && calls == 3 { Err(SnapshotError::Stopped) } else { Ok(()) }
    });
    assert_eq!(ended.unwrap_err().code(), "snapshot_stopped");
    assert_eq!(calls, 3);
    assert!(scene.checkpoints.run(run).unwrap().end.is_none());
}

/// A workspace on a file system of its own that has no room, in the mount namespace of the test's child.
#[test]
fn what_does_not_fit_is_left_and_the_rest_goes_back() {
    if !rustix::process::geteuid().is_root() {
        println!("in part: test what_does_not_fit_is_left_and_the_rest_goes_back: only root can mount");
        return;
    }
    let line = "exec \"$1\" --exact child_fills --ignored --nocapture";
    let mut child = Command::new("unshare");
    child.args(["--mount", "sh", "-c", line, "sh"]).arg(std::env::current_exe().unwrap());
    assert!(child.status().unwrap().success());
}

#[test]
#[ignore = "the child of another test"]
fn child_fills() {
    let mut scene = Scene::new();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"]).arg(scene.tree());
    assert!(mount.status().unwrap().success());
    scene.root = File::open(scene.tree()).unwrap();
    let large = "0123456789abcdef".repeat(50 << 10);
    scene.put("large", &large[..600 << 10]);
    scene.put("small", "old\n");
    let run = scene.take();
    fs::remove_file(scene.tree().join("large")).unwrap();
    scene.put("small", "by the run\n");
    scene.end(run);
    scene.put("mine", &large);
    let done = scene.undo(run, &scene.whole(run)).unwrap();
    let left: Vec<_> = done.applied.left.iter().map(|left| (left.path.as_slice(), left.why.as_str())).collect();
    assert!(matches!(left.as_slice(), [(b"large", why)] if why.contains("No space left")), "{left:?}");
    assert_eq!(done.applied.aside, []);
    assert_eq!((scene.text("small"), scene.text("mine").len()), ("old\n".to_owned(), 800 << 10));
    let names = || fs::read_dir(scene.tree()).unwrap().count();
    assert_eq!(names(), 2, "nothing of the undo is there");
    // With room again it comes back.
    fs::remove_file(scene.tree().join("mine")).unwrap();
    let done = scene.undo(run, &scene.whole(run)).unwrap();
    assert!(done.went_on.is_none() && done.applied.left.is_empty(), "{:?}", done.applied);
    assert_eq!((scene.text("large").len(), names()), (600 << 10, 2));
    drop(scene.root);
    assert!(Command::new("umount").arg("-l").arg(scene.base.path().join("w")).status().unwrap().success());
}
