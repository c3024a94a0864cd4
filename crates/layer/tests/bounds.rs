//! Files that a hostile run makes large without a cost hold no command up: both versions of each stay, and are evaluated
//! without being read whole.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::Scene;
use nexus_layer::review::diff::DiffOptions;
use nexus_layer::{CommitState, Layer, LayerMode, Outside, Rules, Workspace};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Reading a terabyte takes many minutes, and what a command should read takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a part of a test to its end, which must come soon.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Makes a file of nothing but a hole, with a time stamp that is always the same.
fn hole(path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
    let at = Timespec { tv_sec: 1_000_000, tv_nsec: 5 };
    let times = Timestamps { last_access: at, last_modification: at };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A layer with files that equal those of the workspace in size and time.
fn equal(files: &[(&str, u64)]) -> (Scene, Layer) {
    let scene = Scene::new(LayerMode::Root, &[]);
    for (name, size) in files {
        hole(&scene.ws().join(name), *size);
    }
    common::wait_for_tick(scene.dir.path());
    let layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
    for (name, size) in files {
        hole(&layer.upper().join(name), *size);
        fs::write(layer.upper().join(format!("{name}.by-the-run")), "run").unwrap();
    }
    (scene, layer)
}

/// Looks at the layer in every way, and commits it.
fn all_commands(ws: &Path, layers: &Path, layer: &Layer) -> Vec<String> {
    let workspace = Workspace::open(ws).unwrap();
    let rules = Rules::default();
    let changes = layer.changes(&workspace, &rules).unwrap();
    let modified = changes.changes.iter().filter(|one| one.kind == nexus_layer::ChangeKind::Modified);
    let modified = modified.map(|one| one.path.as_path().display().to_string()).collect();
    layer.diff(&workspace, &rules, &DiffOptions::default()).unwrap();
    layer.park(&workspace, &rules).unwrap();
    assert!(layers.join("run/parked.json").exists());
    let done = layer.commit(&workspace, &rules).unwrap();
    assert_eq!((done.state, done.conflicts), (CommitState::Committed, vec![]));
    modified
}

#[test]
fn a_file_of_terabytes_counts_as_changed_without_a_look() {
    for size in [(64 << 20) + 1, 1 << 43] {
        let (scene, layer) = equal(&[("huge", size), ("small", 4096)]);
        let (ws, layers, old) =
            (scene.ws(), scene.path("layers"), fs::metadata(scene.ws().join("huge")).unwrap().ino());
        let modified = soon("the commit", move || all_commands(&ws, &layers, &layer));
        assert_eq!(modified, ["huge"], "the small one was read, and is equal");
        assert_ne!(fs::metadata(scene.ws().join("huge")).unwrap().ino(), old, "the run's version came");
        assert_eq!(fs::read(scene.ws().join("huge.by-the-run")).unwrap(), b"run");
    }
}

#[test]
fn the_bytes_that_a_reading_compares_are_bounded_in_all() {
    let names: Vec<String> = (0..48).map(|at| format!("f{at:02}")).collect();
    let files: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 64 << 20)).collect();
    let (scene, layer) = equal(&files);
    let workspace = scene.workspace();
    let changes = soon("the reading", move || layer.changes(&workspace, &Rules::default()).unwrap());
    let modified = changes.changes.iter().filter(|one| !one.path.as_path().to_str().unwrap().ends_with("run"));
    // 2 GiB are compared: 32 of these files are known to be equal, and the others are not.
    assert_eq!(modified.count(), 16);
}

#[test]
fn both_versions_of_a_file_of_terabytes_stay_at_a_conflict() {
    let (scene, layer) = equal(&[("huge", 1 << 43)]);
    let outside = scene.ws().join("huge");
    common::wait_for_tick(scene.dir.path());
    std::os::unix::fs::FileExt::write_at(&File::options().write(true).open(&outside).unwrap(), b"mine", 5).unwrap();
    let (workspace, upper) = (scene.workspace(), layer.upper());
    let done = soon("the commit", move || layer.commit(&workspace, &Rules::default()).unwrap());
    let found: Vec<_> = done.conflicts.iter().map(|one| (one.path.clone(), one.outside)).collect();
    assert_eq!(found, [("huge".into(), Outside::Changed)]);
    let mut text = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&File::open(&outside).unwrap(), &mut text, 5).unwrap();
    assert_eq!(&text, b"mine");
    assert_eq!(fs::metadata(upper.join("huge")).unwrap().len(), 1 << 43);
}
