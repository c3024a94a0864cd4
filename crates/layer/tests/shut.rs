//! Directories of the workspace that are closed to their owner, and a later run that opens or removes one: as an ordinary user,
//! whose commit cannot see into them, and as root, whose commit can.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, give};
use nexus_layer::{Abandoned, Faults, Host, Layer, LayerMode, Reach, Rules, Workspace, abandon, roll_back};
use std::os::unix::fs::PermissionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Commits the layer of the scene, and writes the paths that wait into the scene.
fn commit(scene: &Path, accepting: bool) {
    let at = std::fs::canonicalize(scene.join("ws")).unwrap();
    let workspace = Workspace::open(&at).unwrap();
    let layer = Layer::open(&scene.join("layers"), "run").unwrap();
    let touched = layer.touched(&workspace).unwrap();
    let rules = Rules::default().for_workspace(&workspace, &at, &Host::default(), Reach::COMMIT, &touched).unwrap();
    let only = std::env::var("ONLY").ok().map(|path| vec![b(&path).into()]);
    let result = layer.commit(&workspace, &Rules { accept_protected: accepting, only, ..rules }).unwrap();
    assert_eq!(result.conflicts, []);
    let parked: Vec<_> = result.parked.iter().map(|one| String::from_utf8_lossy(&one.path.0).into_owned()).collect();
    std::fs::write(scene.join("parked"), parked.join(" ")).unwrap();
}

#[test]
#[ignore = "the child of the other tests"]
fn child_commits() {
    commit(Path::new(&std::env::var("NEXUS_TEST_ORDER").unwrap()), std::env::var("ACCEPTING").is_ok());
}

/// Runs the operations over `closed` with mode 000 and the given entries. Returns the paths that wait after the commit and
/// after each of `accepts` further ones, which accept everything.
fn run(mode: LayerMode, entries: &[Op], ops: &[Op], accepts: usize) -> (Scene, Vec<String>) {
    let mut base = vec![Op::Mkdir(b("closed"))];
    base.extend(entries.iter().cloned());
    base.push(Op::Chmod(b("closed"), 0));
    let scene = Scene::new(mode, &base);
    let layer = scene.layer(ops);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    if mode == LayerMode::User {
        give(&scene.path("layers"));
    }
    let mut parked = Vec::new();
    for number in 0..=accepts {
        match mode {
            LayerMode::Root => commit(scene.dir.path(), number > 0),
            LayerMode::User => {
                let env: &[(&str, &str)] = if number > 0 { &[("ACCEPTING", "1")] } else { &[] };
                let done = scene.child("child_commits", scene.dir.path().to_str().unwrap(), env, false);
                // What is closed to its owner cannot be removed by a test that does not run as root.
                done.map_err(|error| format!("{mode:?} {ops:?} {number}: {error}")).unwrap();
            }
        }
        parked.push(std::fs::read_to_string(scene.path("parked")).unwrap());
    }
    (scene, parked)
}

/// Kills an accept of everything before a call, and takes the commit back. Writes into the scene whether a kill happened.
#[test]
#[ignore = "the child of the next test"]
fn child_takes_back() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let nth: u64 = std::env::var("NTH").unwrap().parse().unwrap();
    let workspace = || Workspace::open(&scene.join("ws")).unwrap();
    let rules = Rules { accept_protected: true, ..Rules::default() };
    let (journal, calls) = (scene.join("layers/run/journal"), AtomicU64::new(0));
    let mut layer = Layer::open(&scene.join("layers"), "run").unwrap();
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            std::panic::panic_any("killed");
        }
    })));
    let killed = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace(), &rules).unwrap()));
    drop(layer);
    let is_killed = killed.is_err() && scene.join("layers/run/journal").exists();
    std::fs::write(scene.join("killed"), if is_killed { "yes" } else { "no" }).unwrap();
    if is_killed {
        assert_eq!(roll_back(&scene.join("layers"), "run", &workspace()).unwrap(), []);
        let modes =
            ["d", "d/s"].map(|path| scene.join("ws").join(path).metadata().unwrap().permissions().mode() & 0o777);
        assert_eq!(modes, [0o500, 0o500]);
        // What closed them is not a change by another process.
        let open = || Layer::open(&scene.join("layers"), "run").unwrap();
        open().park(&workspace(), &Rules::default()).unwrap();
        assert_eq!(open().commit(&workspace(), &rules).unwrap().conflicts, []);
    }
}

#[test]
fn a_closed_directory_that_did_not_leave_is_closed_after_a_way_back() {
    let base = [
        Op::Mkdir(b("d")),
        Op::Mkdir(b("d/s")),
        Op::Write(b("d/s/x"), "old".into()),
        Op::Chmod(b("d/s"), 0o500),
        Op::Chmod(b("d"), 0o500),
    ];
    let removed = vec![Op::Chmod(b("d"), 0o700), Op::Chmod(b("d/s"), 0o700), Op::RemoveTree(b("d"))];
    for (what, then) in [
        ("removed", vec![]),
        ("a file", vec![Op::Write(b("d"), "new".into())]),
        ("another directory", vec![Op::Mkdir(b("d")), Op::Write(b("d/q"), "new".into())]),
    ] {
        for nth in 1.. {
            let scene = Scene::new(LayerMode::User, &base);
            let layer = scene.layer(&[removed.clone(), then.clone()].concat());
            layer.park(&scene.workspace(), &Rules::default()).unwrap();
            drop(layer);
            give(&scene.path("layers"));
            let env = [("NTH", &*nth.to_string())];
            let done = scene.child("child_takes_back", scene.dir.path().to_str().unwrap(), &env, false);
            done.map_err(|error| format!("{what} {nth}: {error}")).unwrap();
            if std::fs::read_to_string(scene.path("killed")).unwrap() == "no" {
                assert!(nth > 2, "{what}");
                break;
            }
        }
    }
}

/// The run opens a directory, works in it and closes it again, so that its mode is not a change that could be accepted first.
#[test]
fn what_a_run_did_in_a_closed_directory_is_accepted_once_it_is_open() {
    let (old, open) = (Op::Write(b("closed/x"), "old".into()), Op::Chmod(b("closed"), 0o700));
    let close = Op::Chmod(b("closed"), 0);
    for (work, path, text) in [
        (Op::Append(b("closed/x"), " and new".into()), "closed/x", "old and new"),
        (Op::Write(b("closed/y"), "new".into()), "closed/y", "new"),
    ] {
        let ops = [open.clone(), work, close.clone()];
        let (scene, parked) = run(LayerMode::User, std::slice::from_ref(&old), &ops, 1);
        assert_eq!(parked, [path, path]);
        std::fs::set_permissions(scene.ws().join("closed"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let env = [("ACCEPTING", "1"), ("ONLY", path)];
        let done = scene.child("child_commits", scene.dir.path().to_str().unwrap(), &env, false);
        done.map_err(|error| format!("{ops:?}: {error}")).unwrap();
        // Whether to close it again is up to the person, who changed its mode meanwhile.
        assert_eq!(std::fs::read_to_string(scene.path("parked")).unwrap(), "closed");
        assert_eq!(std::fs::read_to_string(scene.ws().join(path)).unwrap(), text);
        let left = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
        assert_eq!(left, Abandoned::Removed(None));
    }
}

const REMOVED: fn() -> Vec<Op> = || vec![Op::Remove(b("closed"))];

#[test]
fn a_closed_directory_that_a_run_removed_can_be_accepted() {
    let opened = || [vec![Op::Chmod(b("closed"), 0o755)], REMOVED()].concat();
    for ops in [REMOVED(), opened()] {
        let (scene, parked) = run(LayerMode::User, &[], &ops, 1);
        assert_eq!(parked, ["closed", ""]);
        assert!(!scene.ws().join("closed").exists());
        let (scene, parked) = run(LayerMode::Root, &[], &ops, 0);
        assert_eq!(parked, [""]);
        assert!(!scene.ws().join("closed").exists());
    }
}

#[test]
fn what_a_closed_directory_hides_waits_when_it_goes_away() {
    let entries = [Op::Mkdir(b("closed/.vscode")), Op::Write(b("closed/.vscode/tasks.json"), "x".into())];
    let ops = [Op::Chmod(b("closed"), 0o755), Op::RemoveTree(b("closed"))];
    for mode in [LayerMode::User, LayerMode::Root] {
        let (scene, parked) = run(mode, &entries, &ops, 0);
        assert_eq!(parked, ["closed"], "{mode:?}");
        assert!(scene.ws().join("closed/.vscode/tasks.json").exists());
    }
}

#[test]
fn a_closed_directory_that_a_run_opened_can_be_accepted() {
    let entries = [
        Op::Write(b("closed/x"), "old".into()),
        Op::Write(b("closed/gone"), "old".into()),
        Op::Mkdir(b("closed/sub")),
        Op::Write(b("closed/sub/y"), "old".into()),
    ];
    let ops = [
        Op::Chmod(b("closed"), 0o755),
        Op::Write(b("closed/x"), "new".into()),
        Op::Remove(b("closed/gone")),
        Op::Write(b("closed/sub/y"), "new".into()),
        Op::Write(b("closed/sub/added"), "new".into()),
        Op::Mkdir(b("closed/made")),
        Op::Write(b("closed/made/z"), "new".into()),
    ];
    let (scene, parked) = run(LayerMode::User, &entries, &ops, 2);
    assert_eq!(parked[0].split(' ').next(), Some("closed"));
    // The first accept opens the directory, and the second one sees what is in it.
    let still: Vec<_> = parked[1].split(' ').collect();
    assert!(!still.contains(&"closed") && still.contains(&"closed/x") && still.contains(&"closed/gone"), "{parked:?}");
    assert_eq!(parked[2], "", "{parked:?}");
    assert_eq!(scene.found(), scene.wanted());
    let (scene, parked) = run(LayerMode::Root, &entries, &ops, 0);
    assert_eq!(parked, [""]);
    assert_eq!(scene.found(), scene.wanted());
    // Its own time of change tells an ordinary user's layer that the accept set it, and no other process.
    let (scene, parked) = run(LayerMode::User, &entries, &ops[..2], 2);
    assert_eq!(parked, ["closed closed/x", "closed/x", ""]);
    assert_eq!(scene.found(), scene.wanted());
    // With nothing in it that changes.
    let (scene, parked) = run(LayerMode::User, &entries, &ops[..1], 1);
    assert_eq!(parked, ["closed", ""]);
    assert_eq!(scene.ws().join("closed").metadata().unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_new_directory_in_place_of_a_closed_one_can_be_accepted() {
    let ops = [REMOVED(), vec![Op::Mkdir(b("closed")), Op::Write(b("closed/x"), "new".into())]].concat();
    let (scene, parked) = run(LayerMode::User, &[], &ops, 1);
    assert!(parked[0].starts_with("closed"), "{parked:?}");
    assert_eq!(parked[1], "", "{parked:?}");
    assert_eq!(scene.found(), scene.wanted());
    let (scene, parked) = run(LayerMode::Root, &[], &ops, 0);
    assert_eq!(parked, [""]);
    assert_eq!(scene.found(), scene.wanted());
}
