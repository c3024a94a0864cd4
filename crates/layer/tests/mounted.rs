//! Another process mounts something over or inside a directory that a run changed: that path alone is a conflict.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, write};
use nexus_layer::{CommitState, Faults, Layer, LayerMode, Outside, Rules, Workspace, roll_back};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

#[derive(Serialize, Deserialize)]
struct Order {
    scene: PathBuf,
    at: String,
    /// After the decision, and not before the commit.
    late: bool,
}

fn put_a_mount(at: &std::path::Path) {
    mount("none", at, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(at.join("mounted"), "mounted").unwrap();
}

/// Runs in a mount namespace of its own.
#[test]
#[ignore = "the child of the other tests"]
fn child_commits_beside_a_mount() {
    let order: Order = serde_json::from_str(&std::env::var("NEXUS_TEST_ORDER").unwrap()).unwrap();
    let (layers, ws) = (order.scene.join("layers"), order.scene.join("ws"));
    let (at, journal) = (ws.join(&order.at), layers.join("run/journal"));
    let workspace = Workspace::open(&ws).unwrap();
    let mut layer = Layer::open(&layers, "run").unwrap();
    if order.late {
        let at = Mutex::new(Some(at.clone()));
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            if journal.exists()
                && let Some(at) = at.lock().unwrap().take()
            {
                put_a_mount(&at);
            }
        })));
    } else {
        put_a_mount(&at);
        // A review reads it as well.
        layer.changes(&workspace, &Rules::default()).unwrap();
    }
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    let [conflict] = &result.conflicts[..] else { panic!("{result:?}") };
    let path = ws.join(conflict.path.as_path());
    assert!(at.starts_with(&path) || (order.late && path.starts_with(&at)), "{result:?}");
    assert_eq!(result.left, []);
    assert_eq!(fs::read_to_string(at.join("mounted")).unwrap(), "mounted");
    if order.late {
        assert_eq!(result.state, CommitState::Committed);
    } else {
        assert_eq!((result.state, conflict.outside), (CommitState::Parked, Outside::Blocked), "{result:?}");
        let rules = Rules { only: Some(vec!["top".into()]), ..Rules::default() };
        let result = layer.commit(&workspace, &rules).unwrap();
        assert_eq!((result.state, result.conflicts), (CommitState::Committed, vec![]));
    }
    assert_eq!(fs::read_to_string(ws.join("top")).unwrap(), "run");
    drop(layer);
    unmount(&at, UnmountFlags::empty()).unwrap();
    // With the mount gone the rest is accepted. One that was moved away and back has another time stamp.
    let layer = Layer::open(&layers, "run").unwrap();
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    if !order.late {
        assert_eq!((result.state, result.conflicts), (CommitState::Committed, vec![]));
    }
    drop(layer);
    assert!(roll_back(&layers, "run", &workspace).unwrap().is_empty());
}

fn base() -> Vec<Op> {
    let dirs = ["d", "d/in", "d/in/deep"].map(|dir| Op::Mkdir(b(dir)));
    let files = ["top", "d/x", "d/in/y", "d/in/deep/z"].map(|file| write(file, "old"));
    [dirs.to_vec(), files.to_vec()].concat()
}

fn play(run: &[Op], at: &str, late: bool) {
    let scene = Scene::new(LayerMode::Root, &base());
    let layer = scene.layer(&[run, &[write("top", "run")]].concat());
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    let order = Order { scene: scene.dir.path().to_owned(), at: at.to_owned(), late };
    let order = serde_json::to_string(&order).unwrap();
    if let Err(output) = scene.child("child_commits_beside_a_mount", &order, &[], true) {
        panic!("{run:?} {at} {late}: {output}");
    }
    if !late {
        assert_eq!(scene.found(), scene.wanted(), "{run:?} {at}");
    }
}

#[test]
fn a_mount_before_the_decision_is_a_conflict_of_its_path() {
    let replaced = [Op::RemoveTree(b("d")), Op::Mkdir(b("d")), write("d/x", "run")];
    for at in ["d", "d/in", "d/in/deep"] {
        play(&[Op::RemoveTree(b("d"))], at, false);
        play(&[Op::RemoveTree(b("d")), write("d", "run")], at, false);
        play(&[Op::Rename(b("d"), b("e"))], at, false);
        play(&replaced, at, false);
        play(&[write("d/in/deep/z", "run")], at, false);
        play(&[Op::Chmod(b(at), 0o700)], at, false);
    }
}

#[test]
fn a_mount_after_the_decision_keeps_back_its_path_alone() {
    for at in ["d", "d/in", "d/in/deep"] {
        play(&[Op::RemoveTree(b("d"))], at, true);
        play(&[Op::RemoveTree(b("d")), write("d", "run")], at, true);
        play(&[write("d/in/deep/z", "run")], at, true);
    }
}
