//! Two runs of one user work in one directory at the same time.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, write};
use nexus_layer::{Faults, Layer, LayerMode, Outside, Rules};
use std::fs;
use std::sync::Arc;

#[test]
#[ignore = "the child of the other tests"]
fn child_commits() {
    common::commit_for_parent();
}

/// Lets a run work, and puts its layer away under another name.
fn run(scene: &Scene, ops: &[Op], name: &str) {
    let layer = scene.layer(ops);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    common::give(&scene.path("layers"));
    fs::rename(scene.path("layers/run"), scene.path("layers").join(name)).unwrap();
    common::wait_for_tick(scene.dir.path());
}

/// Brings a layer back. That the scene gave its entries to the user since does not change what was parked.
fn take(scene: &Scene, name: &str) {
    fs::rename(scene.path("layers").join(name), scene.path("layers/run")).unwrap();
    common::wait_for_tick(scene.dir.path());
    let parked = fs::File::open(scene.path("layers/run/parked.json")).unwrap();
    parked.set_modified(std::time::SystemTime::now()).unwrap();
}

/// Commits a layer that was put away, as its user.
fn commit(scene: &Scene, name: &str) -> Result<(), String> {
    take(scene, name);
    scene.child("child_commits", scene.dir.path().to_str().unwrap(), &[], false)
}

fn base() -> Vec<Op> {
    let names = ["x", "y", "z"];
    let mut all = Vec::new();
    for directory in ["d", "d/in", "e"] {
        all.push(Op::Mkdir(b(directory)));
        all.extend(names.iter().map(|name| write(&format!("{directory}/{name}"), "old")));
    }
    all
}

/// A directory whose times were set looks like one that was moved: that it does so is older than both runs.
#[test]
fn runs_that_change_different_files_of_one_directory_both_commit() {
    for first in [
        vec![write("d/x", "of the first")],
        vec![write("d/new", "of the first")],
        vec![Op::Remove(b("d/x"))],
        vec![write("d/in/x", "of the first"), write("d/in/new", "of the first")],
    ] {
        for times in [vec![], vec![Op::Date(b("d"), 1_000_000_000), Op::Date(b("d/in"), 1_000_000_000)]] {
            let scene = Scene::new(LayerMode::User, &[base(), times].concat());
            // A directory can have been moved only where the one that it is in changed.
            run(&scene, &[first.clone(), vec![write("made", "of the first")]].concat(), "first");
            run(&scene, &[write("d/y", "of the second"), write("d/in/y", "of the second")], "second");
            commit(&scene, "first").unwrap();
            commit(&scene, "second").unwrap();
            let texts = |place: &str| fs::read_to_string(scene.ws().join(place)).unwrap();
            assert_eq!((texts("d/y"), texts("d/in/y")), ("of the second".to_owned(), "of the second".to_owned()));
            assert_eq!(scene.found(), scene.wanted(), "{first:?}");
        }
    }
}

/// The commit itself changed the directory of what it kept back, and perhaps set its time.
#[test]
fn a_path_that_was_kept_back_is_the_only_conflict_of_the_next_accept() {
    let scene = Scene::new(LayerMode::User, &base());
    let mut layer = scene.layer(&["d/x", "d/y", "made"].map(|path| write(path, "run")));
    let (journal, edited) = (scene.path("layers/run/journal"), scene.ws().join("d/y"));
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() {
            fs::write(&edited, "of the host").unwrap();
        }
    })));
    let conflicts = |layer: &Layer| {
        let done = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        done.conflicts.iter().map(|one| (one.path.clone(), one.outside)).collect::<Vec<_>>()
    };
    assert_eq!(conflicts(&layer), [("d/y".into(), Outside::Changed)]);
    assert_eq!(fs::read_to_string(scene.ws().join("d/x")).unwrap(), "run");
    drop(layer);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    assert_eq!(conflicts(&layer), [("d/y".into(), Outside::Changed)]);
}

/// The commit of a run that saw the new directory does not hide that it is another one for a run that is older.
#[test]
fn a_commit_hides_no_directory_that_was_replaced() {
    let scene = Scene::new(LayerMode::User, &base());
    run(&scene, &[write("d/y", "of the first")], "first");
    for tree in [scene.ws(), scene.path("plain")] {
        for op in [rename("d", "was"), rename("e", "d")] {
            common::run_op(&tree, &op).unwrap();
        }
    }
    common::wait_for_tick(scene.dir.path());
    run(&scene, &[write("d/x", "of the second")], "second");
    commit(&scene, "second").unwrap();
    take(&scene, "first");
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let done = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    let found: Vec<_> = done.conflicts.iter().map(|one| (one.path.clone(), one.outside)).collect();
    assert_eq!(found, [("d".into(), Outside::Replaced)]);
    assert_eq!(fs::read_to_string(scene.ws().join("d/y")).unwrap(), "old");
}
