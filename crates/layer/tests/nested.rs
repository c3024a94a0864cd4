//! Two commits at once into a directory and into one below it, which take different locks: each sees the other's steps as
//! those of any other process, and no version is lost.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene};
use nexus_layer::{Committed, Faults, Layer, LayerMode, Rules, Workspace};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

fn write(path: &str, text: &str) -> Op {
    Op::Write(path.into(), text.into())
}

fn leased(path: &Path) -> Workspace {
    Workspace::open(path).unwrap().with_leases(nexus_jail::lease::read_lease)
}

/// The texts of all files below a directory.
fn texts(root: &Path) -> Vec<String> {
    let (mut found, mut stack) = (Vec::new(), vec![root.to_owned()]);
    while let Some(path) = stack.pop() {
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => stack.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path())),
            _ => found.extend(fs::read_to_string(&path)),
        }
    }
    found
}

/// A parked layer of `ws` in `outer`, and one of `ws/sub` in `inner`, which change the same files.
fn scene() -> (Scene, PathBuf, PathBuf) {
    let base = [
        Op::Mkdir("sub".into()),
        write("sub/both", "old both"),
        write("sub/gone", "old gone"),
        Op::Mkdir("sub/d".into()),
        write("sub/d/f", "old f"),
        write("top", "old top"),
    ];
    let scene = Scene::new(LayerMode::Root, &base);
    let (outer, inner) = (scene.path("layers"), scene.path("inner"));
    fs::create_dir(&inner).unwrap();
    let below = Workspace::open(&scene.ws().join("sub")).unwrap();
    let mut layer = Layer::create(&inner, "run", &below, LayerMode::Root).unwrap();
    for (name, text) in [("both", "inner both"), ("gone", "inner gone"), ("new", "inner new")] {
        fs::write(layer.upper().join(name), text).unwrap();
    }
    fs::create_dir(layer.upper().join("d")).unwrap();
    fs::write(layer.upper().join("d/late"), "inner late").unwrap();
    layer.set_unreached();
    layer.park(&below, &Rules::default()).unwrap();
    drop(layer);
    let run = [
        write("sub/both", "outer both"),
        Op::Remove("sub/gone".into()),
        write("sub/new", "outer new"),
        Op::RemoveTree("sub/d".into()),
        write("top", "outer top"),
    ];
    scene.layer(&run).park(&scene.workspace(), &Rules::default()).unwrap();
    (scene, outer, inner)
}

fn accept(layers: &Path, workspace: &Path, faults: Faults) -> Committed {
    let mut layer = Layer::open(layers, "run").unwrap();
    layer.set_faults(faults);
    layer.commit(&leased(workspace), &Rules::default()).unwrap()
}

fn has(result: &Committed, path: &str) -> bool {
    result.changes.changes.iter().any(|change| change.path.as_path() == Path::new(path))
}

#[test]
fn two_commits_into_nested_workspaces_lose_nothing() {
    for is_outer_first in [true, false] {
        let mut conflicts = 0;
        for nth in 1.. {
            let (scene, outer, inner) = scene();
            let (ws, sub) = (scene.ws(), scene.ws().join("sub"));
            let second = Arc::new(Mutex::new(None));
            let (there, of_second) = (Arc::clone(&second), if is_outer_first { (&inner, &sub) } else { (&outer, &ws) });
            let (layers, workspace) = (of_second.0.clone(), of_second.1.clone());
            let faults = Faults::default().between(Arc::new(move |passed| {
                if passed == nth {
                    *there.lock().unwrap() = Some(accept(&layers, &workspace, Faults::default()));
                }
            }));
            let first = if is_outer_first { accept(&outer, &ws, faults) } else { accept(&inner, &sub, faults) };
            let Some(second) = second.lock().unwrap().take() else {
                assert!(nth > 20 && conflicts > 20, "only {nth} calls, {conflicts} conflicts");
                break;
            };
            let (of_outer, of_inner) = if is_outer_first { (first, second) } else { (second, first) };
            conflicts += usize::from(!of_outer.conflicts.is_empty() || !of_inner.conflicts.is_empty());
            let what = format!("outer first: {is_outer_first}, call {nth}: {of_outer:?} {of_inner:?}");
            let all = texts(scene.dir.path());
            for text in ["outer both", "outer new", "outer top", "inner both", "inner gone", "inner new", "inner late"]
            {
                assert!(all.iter().any(|one| one == text), "{text} is gone, {what}");
            }
            for name in ["both", "new"] {
                let now = fs::read_to_string(sub.join(name)).unwrap_or_default();
                let by = (has(&of_outer, &format!("sub/{name}")), has(&of_inner, name));
                assert_ne!(by, (true, true), "{name} came from both, {what}");
                assert!(!by.0 || now == format!("outer {name}"), "{name} is {now}, {what}");
                assert!(!by.1 || now == format!("inner {name}"), "{name} is {now}, {what}");
            }
            if has(&of_inner, "gone") {
                assert_eq!(fs::read_to_string(sub.join("gone")).unwrap(), "inner gone", "{what}");
            }
            if has(&of_inner, "d/late") {
                assert_eq!(fs::read_to_string(sub.join("d/late")).unwrap(), "inner late", "{what}");
            }
        }
    }
}
