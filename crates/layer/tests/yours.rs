//! Conflicts that are decided for the run: the workspace's version is kept beside, and one that changes afterwards stays.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, wait_for_tick, write};
use nexus_layer::{Layer, LayerMode, Rules, YoursError};
use nexus_model::ByteText;
use std::fs;

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

/// A run that changed `f`, after which the workspace's `f` is another file.
fn in_conflict(mode: LayerMode) -> (Scene, Layer) {
    let scene = Scene::new(mode, &[write("f", "old")]);
    let layer = scene.layer(&[write("f", "run")]);
    replace(&scene, "f", "mine");
    (scene, layer)
}

/// Replaces a file as an editor does.
fn replace(scene: &Scene, name: &str, text: &str) {
    wait_for_tick(scene.dir.path());
    fs::write(scene.ws().join("new"), text).unwrap();
    fs::rename(scene.ws().join("new"), scene.ws().join(name)).unwrap();
}

fn text(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.ws().join(name)).unwrap_or_else(|error| format!("{name}: {error}"))
}

#[test]
fn the_runs_version_comes_over_what_was_kept_beside() {
    for mode in MODES {
        let (scene, layer) = in_conflict(mode);
        let plain = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(plain.conflicts.len(), 1, "{mode:?}");
        let yours = layer.keep_yours(&scene.workspace(), &"f".into()).unwrap();
        let copy = yours.copy.clone().unwrap();
        let rules = Rules { theirs: vec![yours], ..Rules::default() };
        let done = layer.commit(&scene.workspace(), &rules).unwrap();
        assert!(done.conflicts.is_empty() && done.changes.changes.len() == 1, "{mode:?}: {:?}", done.conflicts);
        assert_eq!(
            (text(&scene, "f"), fs::read(scene.ws().join(copy.as_path())).unwrap()),
            ("run".into(), b"mine".to_vec())
        );
    }
}

#[test]
fn a_version_that_changes_after_its_copy_stays() {
    for mode in MODES {
        let (scene, layer) = in_conflict(mode);
        let yours = layer.keep_yours(&scene.workspace(), &"f".into()).unwrap();
        replace(&scene, "f", "mine again");
        let rules = Rules { theirs: vec![yours.clone()], ..Rules::default() };
        let done = layer.commit(&scene.workspace(), &rules).unwrap();
        assert_eq!((done.conflicts.len(), text(&scene, "f")), (1, "mine again".into()), "{mode:?}");
        // Also where it is written in place, and where it is gone.
        layer.forget_yours(&scene.workspace(), &yours).unwrap();
        assert!(!scene.ws().join(yours.copy.clone().unwrap().as_path()).exists());
        let yours = layer.keep_yours(&scene.workspace(), &"f".into()).unwrap();
        wait_for_tick(scene.dir.path());
        fs::write(scene.ws().join("f"), "MINE AGAIN").unwrap();
        let rules = Rules { theirs: vec![yours], ..Rules::default() };
        let done = layer.commit(&scene.workspace(), &rules).unwrap();
        assert_eq!((done.conflicts.len(), text(&scene, "f")), (1, "MINE AGAIN".into()), "{mode:?}");
    }
}

#[test]
fn a_file_that_was_removed_comes_back_when_the_run_is_chosen() {
    for mode in MODES {
        let scene = Scene::new(mode, &[write("f", "old"), write("g", "other")]);
        let layer = scene.layer(&[Op::Append(b("f"), "run".into())]);
        fs::remove_file(scene.ws().join("f")).unwrap();
        assert_eq!(layer.commit(&scene.workspace(), &Rules::default()).unwrap().conflicts.len(), 1, "{mode:?}");
        let yours = layer.keep_yours(&scene.workspace(), &"f".into()).unwrap();
        assert_eq!(yours.copy, None);
        let rules = Rules { theirs: vec![yours], ..Rules::default() };
        let done = layer.commit(&scene.workspace(), &rules).unwrap();
        assert_eq!((done.conflicts.len(), text(&scene, "f")), (0, "oldrun".into()), "{mode:?}");
    }
}

#[test]
fn what_no_copy_can_stand_for_waits() {
    for mode in MODES {
        let base = [
            write("f", "old"),
            write("two", "x"),
            Op::Link(b("two"), b("names")),
            Op::Mkdir(b("d")),
            write("d/x", "x"),
        ];
        let scene = Scene::new(mode, &base);
        fs::create_dir(scene.ws().join(".git")).unwrap();
        let layer = scene.layer(&[write("f", "run"), write("two", "run"), Op::RemoveTree(b("d"))]);
        let keep = |path: &str| layer.keep_yours(&scene.workspace(), &ByteText::from(path));
        for path in ["two", "d", "d/x", ".git/index", "sub/.GIT/config", "none"] {
            assert!(matches!(keep(path), Err(YoursError::NotAFile { .. })), "{mode:?}: {path}: {:?}", keep(path));
        }
    }
}

/// An accept that was killed leaves copies and no word of them.
#[test]
fn a_copy_that_is_there_counts_and_what_else_has_its_name_stays() {
    for mode in MODES {
        let (scene, layer) = in_conflict(mode);
        let keep = || layer.keep_yours(&scene.workspace(), &"f".into());
        let at = |copy: &ByteText| scene.ws().join(copy.as_path());
        let first = keep().unwrap().copy.unwrap();
        assert_eq!(keep().unwrap().copy, Some(first.clone()), "{mode:?}: the copy of the killed accept");
        // The user went on in the meantime, or has a file of that name.
        replace(&scene, "f", "mine again");
        let second = keep().unwrap().copy.unwrap();
        assert_eq!((text(&scene, first.as_path().to_str().unwrap()), second != first), ("mine".into(), true));
        assert_eq!(fs::read_to_string(at(&second)).unwrap(), "mine again");
        assert_eq!(keep().unwrap().copy, Some(second.clone()), "{mode:?}");
        // A link to the same text is not a copy, nor is a second name of the file.
        fs::remove_file(at(&second)).unwrap();
        std::os::unix::fs::symlink("f", at(&second)).unwrap();
        let third = keep().unwrap().copy.unwrap();
        assert!(third != second && fs::symlink_metadata(at(&third)).unwrap().is_file(), "{mode:?}");
        // The names end, and nothing is written over.
        for number in 2..=9 {
            let name = format!("{}-{number}", first.as_path().display());
            fs::remove_file(scene.ws().join(&name)).ok();
            fs::write(scene.ws().join(&name), "precious").unwrap();
        }
        assert!(matches!(keep(), Err(YoursError::NotAFile { .. })), "{mode:?}");
        assert_eq!(fs::read_to_string(at(&second)).unwrap(), "precious");
    }
}
