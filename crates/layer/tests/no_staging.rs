//! A person removes the staging directory of an interrupted commit from the workspace: every command goes on, and what was in
//! it is named.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, dying_at, leased, write};
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Layer, LayerMode, Recovered, Rules, recover, roll_back};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const DELETED: [&str; 2] = ["gone1", "gone2"];

/// A commit of a layer on another file system that died at a call. `None`: it did not, or is past its decision.
fn interrupted(nth: u64) -> Option<(Scene, tempfile::TempDir)> {
    let mut base: Vec<Op> = ["gone1", "gone2", "m", "t"].map(|name| write(name, &format!("old {name}"))).to_vec();
    base.extend([Op::Mkdir(b("d")), write("d/x", "old x")]);
    let scene = Scene::one_of_many(LayerMode::Root, &base);
    let other = tempfile::tempdir_in(if nth.is_multiple_of(4) { "/dev/shm" } else { "/var/tmp" }).unwrap();
    let layers = scene.path("layers");
    fs::remove_dir(&layers).unwrap();
    std::os::unix::fs::symlink(other.path(), &layers).unwrap();
    let mut run = DELETED.map(|name| Op::Remove(b(name))).to_vec();
    run.extend([write("m", "new m"), write("added", "new"), Op::Link(b("t"), b("t2")), Op::Rename(b("d"), b("e"))]);
    let mut layer = scene.layer(&run);
    layer.set_faults(dying_at(layers.join("run/journal"), nth));
    let workspace = leased(&scene);
    let died = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()).unwrap())).is_err();
    let is_open = layers.join("run/journal").exists() && scene.ws().join(".nexus-tmp-run").exists();
    (died && is_open).then_some((scene, other))
}

fn text(scene: &Scene, path: &str) -> Option<String> {
    fs::read_to_string(scene.ws().join(path)).ok()
}

#[test]
fn a_commit_without_its_staging_directory_is_recovered() {
    let mut places = 0;
    for nth in 1..60 {
        let Some((scene, _other)) = interrupted(nth) else { continue };
        places += 1;
        fs::remove_dir_all(scene.ws().join(".nexus-tmp-run")).unwrap();
        let Recovered::RolledForward(done) = recover(&scene.path("layers"), "run", &leased(&scene)).unwrap() else {
            panic!("{nth}: not recovered")
        };
        for name in DELETED {
            // What was not taken out yet stays, and its deletion waits.
            let is_named = done.conflicts.iter().any(|one| one.path.as_path() == Path::new(name));
            assert_eq!(text(&scene, name).is_some(), is_named, "{nth} {name}: {done:?}");
            let waits = done.parked.iter().any(|one| one.path.as_path() == Path::new(name));
            assert_eq!(waits, is_named, "{nth} {name}: {done:?}");
        }
        assert_eq!(text(&scene, "t").as_deref(), Some("old t"), "{nth}: {done:?}");
        // The rest is decided by an ordinary accept.
        if !done.parked.is_empty() {
            Layer::open(&scene.path("layers"), "run").unwrap().note_shown().unwrap();
        }
    }
    assert!(places > 8, "only {places} places");
}

#[test]
fn what_was_in_a_removed_staging_directory_is_named() {
    let mut places = 0;
    for nth in 1..60 {
        let Some((scene, _other)) = interrupted(nth) else { continue };
        places += 1;
        fs::remove_dir_all(scene.ws().join(".nexus-tmp-run")).unwrap();
        let conflicts = roll_back(&scene.path("layers"), "run", &leased(&scene)).unwrap();
        let is_named = |name: &str| {
            conflicts
                .iter()
                .any(|one| one.path.as_path() == Path::new(name) && one.detail.as_ref().unwrap().contains("gone"))
        };
        for (name, old) in [("gone1", "old gone1"), ("gone2", "old gone2"), ("m", "old m")] {
            let is_back = text(&scene, name).as_deref() == Some(old);
            assert_eq!(is_back, !is_named(name), "{nth} {name}: {conflicts:?}");
        }
        let is_there = text(&scene, "d/x").is_some() || is_named("d") || is_named("e");
        assert!(is_there, "{nth}: {conflicts:?}");
        assert!(!scene.path("layers/run/journal").exists());
    }
    assert!(places > 8, "only {places} places");
}

/// The way back itself removes the staging directory, and nothing is lost by that.
#[test]
fn a_way_back_that_is_killed_at_its_end_names_no_loss() {
    for nth in 1.. {
        let Some((scene, _other)) = (10..60).find_map(interrupted) else { panic!("no commit died") };
        let (layers, workspace) = (scene.path("layers"), leased(&scene));
        let faults = dying_at(layers.join("run/journal"), nth);
        let back = catch_unwind(AssertUnwindSafe(|| roll_back_with(&layers, "run", &workspace, &faults).unwrap()));
        if layers.join("run/journal").exists() {
            // A person goes on meanwhile.
            let is_removed = !scene.ws().join(".nexus-tmp-run").exists();
            if is_removed {
                fs::remove_file(scene.ws().join("gone1")).unwrap();
            }
            assert_eq!(roll_back(&layers, "run", &workspace).unwrap(), [], "{nth}");
            assert_eq!(text(&scene, "gone1").is_some(), !is_removed);
            assert_eq!(text(&scene, "gone2").as_deref(), Some("old gone2"), "{nth}");
        }
        if back.is_ok() {
            assert!(nth > 8, "only {nth} places");
            return;
        }
    }
}
