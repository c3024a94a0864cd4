//! Directories that are closed to their owner, and commits of an ordinary user that are taken back.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, reopen};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Faults, LayerMode, Recovered, Rules, Workspace};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

fn scene_of_parent() -> (PathBuf, Workspace) {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    (scene, workspace)
}

#[test]
#[ignore = "the child of the other tests"]
fn child_commits_until_it_is_killed() {
    let (scene, workspace) = scene_of_parent();
    let mut layer = reopen(&scene.join("layers"));
    layer.set_faults(Faults::from_env());
    // A taking back moved the entries of the layer, so that they have to be looked at again.
    layer.note_shown().unwrap();
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    assert_eq!(result.conflicts, [], "{result:?}");
}

#[test]
#[ignore = "the child of the other tests"]
fn child_takes_back() {
    let (scene, workspace) = scene_of_parent();
    assert_eq!(roll_back_with(&scene.join("layers"), "run", &workspace, &Faults::from_env()).unwrap(), []);
}

#[test]
#[ignore = "the child of the other tests"]
fn child_recovers() {
    let (scene, workspace) = scene_of_parent();
    // A process that begins to take a commit back leaves a mark from which a later one continues.
    let done = recover_with(&scene.join("layers"), "run", &workspace, &Faults::from_env()).unwrap();
    assert!(matches!(done, Recovered::RolledForward(_) | Recovered::TakenBack(_)), "{done:?}");
}

fn modes(scene: &Scene) -> BTreeMap<&'static str, u32> {
    let mode = |path: &str| scene.ws().join(path).metadata().map_or(0, |meta| meta.permissions().mode() & 0o7777);
    ["", "d", "d/in", "e", "p", "shut", "shut/in"].into_iter().map(|path| (path, mode(path))).collect()
}

fn scene() -> Scene {
    let base = [
        Op::Mkdir(b("d")),
        Op::Mkdir(b("d/in")),
        Op::Mkdir(b("e")),
        Op::Mkdir(b("p")),
        Op::Write(b("d/f"), "old".into()),
        Op::Write(b("d/in/g"), "old".into()),
        Op::Write(b("e/h"), "old".into()),
        Op::Chmod(b("d/in"), 0o555),
        Op::Chmod(b("d"), 0o500),
    ];
    let scene = Scene::new(LayerMode::User, &base);
    let run = [
        Op::Chmod(b("d"), 0o700),
        Op::Write(b("d/f"), "run".into()),
        Op::Chmod(b("d/in"), 0o755),
        Op::Write(b("d/in/g"), "run".into()),
        Op::Write(b("d/in/new"), "run".into()),
        Op::Chmod(b("d/in"), 0o555),
        Op::Chmod(b("d"), 0o500),
        Op::Write(b("e/h"), "run".into()),
        Op::Chmod(b("p"), 0o711),
        Op::Mkdir(b("shut")),
        Op::Mkdir(b("shut/in")),
        Op::Write(b("shut/in/new"), "run".into()),
        Op::Chmod(b("shut/in"), 0),
        Op::Chmod(b("shut"), 0o111),
    ];
    let layer = scene.layer(&run);
    drop(layer);
    scene
}

#[test]
#[ignore = "the child of the other tests"]
fn child_parks() {
    let (scene, workspace) = scene_of_parent();
    let origin = nexus_layer::LayerOrigin::guessed(LayerMode::User, nexus_layer::FsTime { sec: i64::MAX, nsec: 0 });
    let layer = nexus_layer::Layer::adopt(&scene.join("layers"), "run", &origin).unwrap();
    layer.park(&workspace, &Rules::default()).unwrap();
}

fn has(scene: &Scene, name: &str) -> bool {
    scene.path("layers/run").join(name).exists()
}

/// A commit that was killed anywhere and taken back, the taking back killed anywhere and repeated or given up.
#[test]
fn a_commit_that_is_taken_back_leaves_every_directory_closed() {
    let abort = |nth: u32| [("NEXUS_LAYER_ABORT_AT", nth.to_string())];
    let mut taken_back = 0;
    for (kill_at, second) in (10..90).map(|at| (at, at % 19 + 1)) {
        let scene = scene();
        let (before, order) = (modes(&scene), scene.dir.path().to_str().unwrap().to_owned());
        let child = |name: &str, nth: Option<u32>| {
            let env = nth.map(abort);
            let env: Vec<_> = env.iter().flatten().map(|(key, value)| (*key, value.as_str())).collect();
            scene.child(name, &order, &env, false)
        };
        child("child_parks", None).unwrap();
        let committed = child("child_commits_until_it_is_killed", Some(kill_at));
        if !has(&scene, "journal") {
            if committed.is_ok() {
                break;
            }
            continue;
        }
        child("child_takes_back", Some(second)).ok();
        if has(&scene, "journal") && kill_at % 2 == 0 {
            child("child_recovers", None).unwrap();
            let ours = ["p", "shut", "shut/in"].map(|path| (path, before[path]));
            let found: BTreeMap<_, _> = modes(&scene).into_iter().chain(ours).collect();
            assert_eq!(found, before, "killed at {kill_at}, then at {second}, and finished");
            continue;
        }
        child("child_takes_back", None).unwrap();
        assert_eq!(modes(&scene), before, "killed at {kill_at} and {second}");
        assert_eq!(read(&scene.ws().join("d/in/g")), "old");
        // Closing a directory is not a change from outside.
        child("child_commits_until_it_is_killed", None).unwrap();
        assert_eq!(read(&scene.ws().join("d/in/g")), "run");
        let closed = modes(&scene);
        assert_eq!((closed["shut"], closed["shut/in"]), (0o111, 0), "killed at {kill_at} and {second}");
        taken_back += 1;
    }
    assert!(taken_back > 8, "only {taken_back}");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
