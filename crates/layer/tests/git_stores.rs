//! Objects in a directory that repositories borrow from have the content that their ids say, too: with the real git.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::Rules;
use repository::{cloned_scene, commit_by, git, parked, run_with};
use std::fs;
use std::path::Path;

/// A clone that borrows objects from a directory of its workspace, and has an object there: in a pack or as a file.
fn borrowing(store: &str, packed: bool) -> Scene {
    let scene = cloned_scene();
    let objects = scene.ws().join(".git/objects");
    if packed {
        git(&scene.ws(), &["repack", "-q", "-a", "-d"]);
    }
    let place = scene.ws().join(store);
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    fs::rename(&objects, &place).unwrap();
    fs::create_dir_all(objects.join("info")).unwrap();
    fs::write(objects.join("info/alternates"), format!("../../{store}\n")).unwrap();
    assert!(git(&scene.ws(), &["log", "--format=%s"]).contains('1'));
    scene
}

/// Writes an object into a store, and returns its path there: with the content of another one, or its own.
fn write_object(upper: &Path, store: &str, forged: bool) -> String {
    let write = |text: &str| {
        fs::write(upper.join("text"), text).unwrap();
        let id = git(upper, &["hash-object", "-w", "text"]).trim().to_owned();
        fs::remove_file(upper.join("text")).unwrap();
        format!("{}/{}", &id[..2], &id[2..])
    };
    let (good, evil) = (write("good"), write("evil"));
    let objects = upper.join(".git/objects");
    let to = upper.join(store).join(&good);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(objects.join(if forged { &evil } else { &good }), &to).unwrap();
    for left in [&good, &evil] {
        fs::remove_dir_all(objects.join(&left[..2])).unwrap();
    }
    format!("{store}/{good}")
}

#[test]
fn a_forged_object_in_a_store_that_others_borrow_from_waits() {
    for store in ["store", "shared/objects"] {
        for (packed, forged) in [(true, true), (false, true), (true, false), (false, false)] {
            let scene = borrowing(store, packed);
            let mut path = String::new();
            let layer = run_with(&scene, |upper| path = write_object(upper, store, forged));
            let result = commit_by(&scene, &layer, &Rules::default());
            assert_eq!(parked(&result) == [path.as_str()], forged, "{store} {packed} {forged}: {result:?}");
            assert_eq!(scene.ws().join(&path).exists(), !forged, "{store} {packed} {forged}");
        }
    }
}

#[test]
fn a_store_without_objects_is_recognized_by_its_directories() {
    let scene = cloned_scene();
    fs::create_dir_all(scene.ws().join("store/pack")).unwrap();
    fs::create_dir_all(scene.ws().join(".git/objects/info")).unwrap();
    fs::write(scene.ws().join(".git/objects/info/alternates"), "../../store\n").unwrap();
    let mut path = String::new();
    let layer = run_with(&scene, |upper| path = write_object(upper, "store", true));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [path.as_str()], "{result:?}");
}

#[test]
fn a_cache_that_names_files_like_objects_is_not_taken_for_a_store() {
    let scene = cloned_scene();
    let (one, other) = (format!("ab/{}", "1".repeat(38)), format!("ab/{}", "2".repeat(38)));
    fs::create_dir_all(scene.ws().join("cache/ab")).unwrap();
    fs::write(scene.ws().join("cache").join(one), "text").unwrap();
    let layer = run_with(&scene, |upper| fs::write(upper.join("cache").join(&other), "text").unwrap());
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), Vec::<String>::new());
    assert!(scene.ws().join("cache").join(&other).exists());
}
