//! A layer in memory that was copied to the disk in part is never taken for a whole one.

#![cfg(feature = "inject")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use common::{Op, Scene, b, rename, snapshot, write};
use nexus_layer::{ChangeKind, Faults, Layer, LayerMode, Rules, is_whole_copy};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// A workspace with something to delete, to replace, to empty and to rename.
fn base() -> Vec<Op> {
    let mut all = vec![Op::Mkdir(b("opaque")), Op::Mkdir(b("renamed")), Op::Mkdir(b("merged"))];
    all.extend(["a1", "a2", "opaque/x", "renamed/y", "merged/z", "kept"].map(|path| write(path, "old")));
    all.push(Op::Chmod(b("merged"), 0o755));
    all
}

fn run() -> Vec<Op> {
    vec![
        rename("a1", "b1"),
        rename("a2", "b2"),
        Op::Append(b("b1"), "new".into()),
        Op::RemoveTree(b("opaque")),
        Op::Mkdir(b("opaque")),
        write("opaque/new", "new"),
        rename("renamed", "moved"),
        Op::Remove(b("merged/z")),
        write("merged/new", "new"),
        write("kept", "newer"),
    ]
}

/// A layer whose upper directory lies elsewhere; the one in its own directory is empty.
fn in_memory(scene: &Scene, memory: &Path, faults: Faults) -> Layer {
    let layer = scene.layer(&run());
    let (upper, there) = (layer.upper(), memory.join("upper"));
    let copied = std::process::Command::new("cp").arg("-a").arg(&upper).arg(&there).status().unwrap();
    assert!(copied.success());
    for entry in std::fs::read_dir(&upper).unwrap() {
        common::run_op(&upper, &Op::RemoveTree(entry.unwrap().file_name().as_bytes().to_vec())).unwrap();
    }
    let mut layer = layer.with_upper(std::fs::File::open(there).unwrap().into());
    layer.set_faults(faults);
    layer
}

/// Reads what was left of a copy, as a command does that comes later.
fn check_part(scene: &Scene, what: &str) {
    let root = scene.path("layers/run");
    if is_whole_copy(&root).unwrap() {
        return;
    }
    let origin = nexus_layer::LayerOrigin::guessed(scene.mode, nexus_layer::FsTime::default());
    let mut layer = match Layer::open(&scene.path("layers"), "run") {
        Ok(_) => panic!("{what}: a part was parked"),
        Err(_) => Layer::adopt(&scene.path("layers"), "run", &origin).unwrap(),
    };
    layer.set_partial();
    if layer.is_bare().unwrap() {
        return;
    }
    layer.part().unwrap();
    for change in layer.changes(&scene.workspace(), &Rules::default()).unwrap().changes {
        let path = change.path.as_path().display().to_string();
        let fits = matches!(change.kind, ChangeKind::Added | ChangeKind::Modified);
        assert!(fits, "{what}: {:?} {path}", change.kind);
        let content = std::fs::read(layer.upper().join(&path)).unwrap_or_default();
        let wanted = std::fs::read(scene.path("plain").join(&path)).unwrap_or_default();
        assert_eq!(content, wanted, "{what}: {path}");
    }
    assert!(!root.join("copying").exists(), "{what}");
}

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

#[test]
fn a_copy_that_dies_anywhere_deletes_and_cuts_nothing() {
    for mode in MODES {
        for nth in 1_u64.. {
            let scene = Scene::one_of_many(mode, &base());
            let memory = tempfile::tempdir_in("/dev/shm").unwrap();
            let dying = Faults::default().between(Arc::new(move |call| {
                if call == nth {
                    std::panic::panic_any("crash");
                }
            }));
            let layer = in_memory(&scene, memory.path(), dying);
            let before = snapshot(&scene.ws(), false);
            let parked = catch_unwind(AssertUnwindSafe(|| layer.park(&scene.workspace(), &Rules::default())));
            drop(layer);
            let Err(crash) = parked else {
                assert!(is_whole_copy(&scene.path("layers/run")).unwrap());
                assert!(nth > 13, "{mode:?}: only {nth} calls");
                break;
            };
            assert_eq!(crash.downcast_ref::<&str>(), Some(&"crash"), "{mode:?} {nth}");
            check_part(&scene, &format!("{mode:?} {nth}"));
            assert_eq!(snapshot(&scene.ws(), false), before, "{mode:?} {nth}");
        }
    }
}

#[test]
fn a_file_that_does_not_arrive_keeps_all_deletions_back() {
    for mode in MODES {
        for nth in 1_u64.. {
            let scene = Scene::one_of_many(mode, &base());
            let memory = tempfile::tempdir_in("/dev/shm").unwrap();
            let staged = scene.path("layers/run/copying");
            let losing = Faults::default().between(Arc::new(move |call| {
                // The file that is being copied goes away under the copy.
                if call >= nth && staged.exists() {
                    std::fs::remove_file(&staged).unwrap();
                }
            }));
            let layer = in_memory(&scene, memory.path(), losing);
            std::fs::set_permissions(memory.path().join("upper"), std::fs::Permissions::from_mode(0o750)).unwrap();
            let parked = layer.park(&scene.workspace(), &Rules::default());
            drop(layer);
            if parked.is_ok() {
                assert!(nth > 5, "{mode:?}: only {nth} calls");
                break;
            }
            let top = std::fs::metadata(scene.path("layers/run/upper")).unwrap().permissions().mode() & 0o777;
            assert_eq!(top, 0o750, "{mode:?} {nth}");
            assert!(!is_whole_copy(&scene.path("layers/run")).unwrap(), "{mode:?} {nth}");
            check_part(&scene, &format!("{mode:?} {nth}"));
        }
    }
}

#[test]
fn a_whole_copy_that_begins_again_is_a_part() {
    let scene = Scene::one_of_many(LayerMode::User, &base());
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut layer = in_memory(&scene, memory.path(), Faults::default());
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    assert!(is_whole_copy(&scene.path("layers/run")).unwrap());
    let staged = scene.path("layers/run/copying");
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if staged.exists() {
            std::fs::remove_file(&staged).unwrap();
        }
    })));
    layer.park(&scene.workspace(), &Rules::default()).unwrap_err();
    assert!(!is_whole_copy(&scene.path("layers/run")).unwrap());
}
