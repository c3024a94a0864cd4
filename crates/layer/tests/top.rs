//! An act of a run on the workspace's own directory is a change like others, with the path `.`.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b};
use nexus_layer::{CommitState, Committed, Layer, LayerMode, Outside, Rules};
use nexus_model::ByteText;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

fn write(path: &str) -> Op {
    Op::Write(b(path), path.into())
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn attr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 256];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// An access list that gives the user 4711 everything, with a mask of `mask`.
fn list(mask: u16) -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 4711), (4, 5, u32::MAX), (16, mask, u32::MAX), (32, 0, u32::MAX)];
    let entry =
        |(tag, bits, id): (u16, u16, u32)| [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat();
    [vec![2, 0, 0, 0], entries.into_iter().flat_map(entry).collect()].concat()
}

const LIST: &str = "system.posix_acl_access";

fn scene(mode: LayerMode, ops: &[Op]) -> (Scene, Layer) {
    let scene = Scene::new(mode, &[write("a")]);
    set_mode(&scene.ws(), 0o755);
    let layer = scene.layer(ops);
    (scene, layer)
}

fn paths(changes: &[nexus_layer::Change]) -> Vec<String> {
    changes.iter().map(|change| change.path.as_path().display().to_string()).collect()
}

fn commit(scene: &Scene, layer: &Layer, rules: &Rules) -> Committed {
    layer.commit(&scene.workspace(), rules).unwrap()
}

fn only(path: &str) -> Rules {
    Rules { only: Some(vec![ByteText::from(path)]), ..Rules::default() }
}

#[test]
fn mode_and_attributes_of_the_workspace_itself_are_committed() {
    for mode in MODES {
        let ops = [Op::Chmod(b(""), 0o750), Op::SetXattr(b(""), "v".into()), write("n")];
        let (scene, layer) = scene(mode, &ops);
        rustix::fs::setxattr(layer.upper(), LIST, &list(5), rustix::fs::XattrFlags::empty()).unwrap();
        let result = commit(&scene, &layer, &Rules::default());
        assert_eq!(
            (result.state, paths(&result.changes.changes)),
            (CommitState::Committed, vec![".".into(), "n".into()])
        );
        assert!(result.conflicts.is_empty() && result.parked.is_empty(), "{mode:?}: {result:?}");
        assert_eq!(mode_of(&scene.ws()), 0o750, "{mode:?}");
        assert_eq!(attr(&scene.ws(), "user.test").as_deref(), Some(&b"v"[..]), "{mode:?}");
        assert_eq!(attr(&scene.ws(), LIST), Some(list(5)), "{mode:?}");
        assert!(!layer.root().exists(), "{mode:?}");
    }
}

#[test]
fn a_run_that_changed_the_directory_alone_changed_something() {
    for mode in MODES {
        let (scene, layer) = scene(mode, &[Op::Chmod(b(""), 0o700)]);
        assert!(!layer.end_if_empty().unwrap().0, "{mode:?}");
        assert!(!layer.is_bare().unwrap(), "{mode:?}");
        let origin = layer.origin();
        drop(layer);
        // As after a kill, when only the note about the layer is left.
        let layer = Layer::adopt(&scene.path("layers"), "run", &origin).unwrap();
        assert!(!layer.is_bare().unwrap(), "{mode:?}");
        assert_eq!(paths(&commit(&scene, &layer, &Rules::default()).changes.changes), ["."], "{mode:?}");
        assert_eq!(mode_of(&scene.ws()), 0o700, "{mode:?}");
    }
}

#[test]
fn the_directory_itself_waits_for_a_review() {
    for mode in MODES {
        let (scene, layer) = scene(mode, &[Op::Chmod(b(""), 0o711), write("n")]);
        let parked = layer.park(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(paths(&parked.changes), [".", "n"], "{mode:?}");
        drop(layer);
        assert_eq!(mode_of(&scene.ws()), 0o755, "{mode:?}");
        // A part of it is accepted, and the directory itself goes on waiting.
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        let result = commit(&scene, &layer, &only("n"));
        assert_eq!((paths(&result.changes.changes), paths(&result.parked)), (vec!["n".into()], vec![".".into()]));
        assert_eq!(mode_of(&scene.ws()), 0o755, "{mode:?}");
        drop(layer);
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        let left = layer.changes(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(paths(&left.changes), ["."], "{mode:?}");
        let result = commit(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty(), "{mode:?}: {:?}", result.conflicts);
        assert_eq!(mode_of(&scene.ws()), 0o711, "{mode:?}");
        assert!(!layer.root().exists(), "{mode:?}");
    }
}

#[test]
fn an_accepted_mode_of_the_directory_is_no_conflict_for_the_rest() {
    for mode in MODES {
        let (scene, layer) = scene(mode, &[Op::Chmod(b(""), 0o711), write("n")]);
        let rejected = Rules { except: vec![ByteText::from("n")], ..Rules::default() };
        let result = commit(&scene, &layer, &rejected);
        assert_eq!((paths(&result.changes.changes), paths(&result.parked)), (vec![".".into()], vec!["n".into()]));
        drop(layer);
        // A change that another process makes to it now is that process's.
        set_mode(&scene.ws(), 0o777);
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        let result = commit(&scene, &layer, &Rules::default());
        assert_eq!((paths(&result.changes.changes), result.conflicts), (vec!["n".into()], Vec::new()), "{mode:?}");
        assert_eq!(mode_of(&scene.ws()), 0o777, "{mode:?}");
    }
}

#[test]
fn a_mode_of_the_directory_that_changed_outside_is_a_conflict() {
    for mode in MODES {
        let (scene, layer) = scene(mode, &[Op::Chmod(b(""), 0o700), write("n")]);
        set_mode(&scene.ws(), 0o775);
        let result = commit(&scene, &layer, &Rules::default());
        assert_eq!(result.state, CommitState::Parked, "{mode:?}");
        let found: Vec<_> = result.conflicts.iter().map(|one| (one.path.as_path(), one.outside)).collect();
        assert_eq!(found, [(Path::new("."), Outside::Changed)], "{mode:?}");
        assert_eq!(mode_of(&scene.ws()), 0o775, "{mode:?}");
        // The other changes have nothing to do with it.
        let result = commit(&scene, &layer, &only("n"));
        assert_eq!((paths(&result.changes.changes), result.conflicts), (vec!["n".into()], Vec::new()), "{mode:?}");
        // Both want the same now.
        set_mode(&scene.ws(), 0o700);
        drop(layer);
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        assert!(layer.changes(&scene.workspace(), &Rules::default()).unwrap().is_empty(), "{mode:?}");
    }
}

#[test]
fn what_the_run_left_alone_stays_as_it_is_outside() {
    for mode in MODES {
        let (scene, layer) = scene(mode, &[write("n")]);
        set_mode(&scene.ws(), 0o1777);
        rustix::fs::setxattr(scene.ws(), LIST, &list(7), rustix::fs::XattrFlags::empty()).unwrap();
        let before = (mode_of(&scene.ws()), attr(&scene.ws(), LIST));
        let result = commit(&scene, &layer, &Rules::default());
        assert_eq!((paths(&result.changes.changes), result.conflicts), (vec!["n".into()], Vec::new()), "{mode:?}");
        assert_eq!((mode_of(&scene.ws()), attr(&scene.ws(), LIST)), before, "{mode:?}");
    }
}

#[test]
fn no_run_gives_the_workspace_a_setuid_bit() {
    for mode in MODES {
        let (scene, layer) = scene(mode, &[write("n")]);
        // As if seccomp had failed.
        set_mode(&layer.upper(), 0o4711);
        let result = commit(&scene, &layer, &Rules::default());
        assert_eq!(paths(&result.changes.changes), [".", "n"], "{mode:?}");
        assert_eq!(mode_of(&scene.ws()), 0o711, "{mode:?}");
    }
}
