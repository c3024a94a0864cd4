//! Files of a layer that a process outside still holds: the commit and the review use copies of them.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, give, wait_for_tick};
use nexus_layer::{CommitError, CommitState, Faults, Layer, LayerMode, LayerOrigin, Rules, Workspace, recover};
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

/// Commits the layer of a run that can tell nothing any more.
#[test]
#[ignore = "the child of the other tests"]
fn child_adopts_and_commits() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    let origin: LayerOrigin = serde_json::from_slice(&std::fs::read(scene.join("origin")).unwrap()).unwrap();
    let mut layer = Layer::adopt(&scene.join("layers"), "run", &origin).unwrap();
    layer.set_faults(Faults::from_env());
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    assert_eq!((result.conflicts, result.parked), (Vec::new(), Vec::new()));
}

#[test]
#[ignore = "the child of the other tests"]
fn child_recovers() {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    recover(&scene.join("layers"), "run", &Workspace::open(&scene.join("ws")).unwrap()).unwrap();
}

fn layer(scene: &Scene) -> Layer {
    Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap()
}

fn scene() -> Scene {
    let base = [Op::Mkdir(b(".git")), Op::Write(b(".git/config"), "[core]\n".into()), Op::Write(b("f"), "old".into())];
    Scene::new(LayerMode::Root, &base)
}

/// Writes the files of a run, and returns the descriptors that stay open.
fn written(layer: &Layer) -> Vec<File> {
    let upper = layer.upper();
    std::fs::create_dir_all(upper.join("new/deep")).unwrap();
    std::fs::create_dir(upper.join(".git")).unwrap();
    let files = [("f", "new"), ("new/deep/f", "new"), (".git/config", "[user]\n\tname = x\n")];
    let write = |(name, text): &(&str, &str)| {
        std::fs::write(upper.join(name), text).unwrap();
        File::options().write(true).open(upper.join(name)).unwrap()
    };
    files.iter().map(write).collect()
}

fn read(scene: &Scene) -> Vec<String> {
    ["f", "new/deep/f", ".git/config"].map(|name| std::fs::read_to_string(scene.ws().join(name)).unwrap()).to_vec()
}

const WANTED: [&str; 3] = ["new", "new", "[user]\n\tname = x\n"];
const EVIL: &[u8] = b"[core]\n\tfsmonitor = evil\n";

#[test]
fn a_held_file_is_not_written_after_the_commit() {
    let scene = scene();
    let layer = layer(&scene);
    let held = written(&layer);
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((result.state, result.parked.len()), (CommitState::Committed, 0), "{result:?}");
    for file in &held {
        file.write_all_at(EVIL, 0).unwrap();
    }
    assert_eq!(read(&scene), WANTED);
    assert!(!scene.path("layers/run").exists());
}

#[test]
fn a_held_file_is_not_written_after_it_was_parked() {
    let scene = scene();
    let mut layer = layer(&scene);
    let held = written(&layer);
    layer.part().unwrap();
    for file in &held {
        file.write_all_at(EVIL, 0).unwrap();
    }
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    for file in &held {
        file.set_len(0).unwrap();
    }
    drop(layer);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((result.state, result.parked.len()), (CommitState::Committed, 0), "{result:?}");
    assert_eq!(read(&scene), WANTED);
}

/// Without anybody outside nothing is copied.
#[test]
fn an_unreached_layer_commits_its_own_inodes() {
    let scene = scene();
    let mut layer = layer(&scene);
    drop(written(&layer));
    layer.set_unreached();
    let inode = std::fs::metadata(layer.upper().join("new/deep/f")).unwrap().ino();
    layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(std::fs::metadata(scene.ws().join("new/deep/f")).unwrap().ino(), inode);
}

/// A change of a parked layer by its own user, also one that keeps the size and sets the time back.
#[test]
fn what_changed_since_the_park_is_not_accepted_unseen() {
    let scene = scene();
    let layer = layer(&scene);
    drop(written(&layer));
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    wait_for_tick(scene.dir.path());
    let changed = scene.path("layers/run/upper/new/deep/f");
    let before = std::fs::metadata(&changed).unwrap().modified().unwrap();
    let file = File::options().write(true).open(&changed).unwrap();
    file.write_all_at(b"NEW", 0).unwrap();
    file.set_modified(before).unwrap();
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let error = layer.commit(&scene.workspace(), &Rules::default()).unwrap_err();
    assert!(matches!(&error, CommitError::Altered { path, .. } if *path == "new/deep/f".into()), "{error:?}");
    assert_eq!(std::fs::read_to_string(scene.ws().join("f")).unwrap(), "old");
    wait_for_tick(scene.dir.path());
    layer.note_shown().unwrap();
    layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(std::fs::read_to_string(scene.ws().join("new/deep/f")).unwrap(), "NEW");
}

fn base() -> Vec<Op> {
    let mut ops: Vec<Op> = ["a", "a/deep", "gone", "old", "perm"].iter().map(|name| Op::Mkdir(b(name))).collect();
    for name in ["a/f", "a/deep/g", "gone/x", "old/z", "old/keep", "plain", "link1", "twin1"] {
        ops.push(Op::Write(b(name), format!("old {name}")));
    }
    ops.extend([Op::Link(b("link1"), b("link2")), Op::Link(b("link1"), b("link3")), Op::Link(b("twin1"), b("twin2"))]);
    ops
}

/// Everything that a layer can hold: marks, links within it and beyond, modes, attributes, holes.
fn operations() -> Vec<Op> {
    vec![
        Op::Rename(b("a"), b("moved")),
        Op::RemoveTree(b("gone")),
        Op::RemoveTree(b("old")),
        Op::Mkdir(b("old")),
        Op::Write(b("old/z"), "new".into()),
        Op::Mkdir(b("new")),
        Op::Write(b("new/one"), "1".into()),
        Op::Link(b("new/one"), b("new/two")),
        Op::Symlink(b("one"), b("new/link")),
        Op::Fifo(b("new/fifo")),
        Op::Sparse(b("new/sparse")),
        Op::Append(b("link1"), " more".into()),
        Op::Append(b("twin1"), " more".into()),
        Op::Remove(b("twin1")),
        Op::SetXattr(b("plain"), "value".into()),
        Op::Touch(b("plain")),
        Op::Write(b("secret"), "s".into()),
        Op::Chmod(b("secret"), 0),
        Op::Chmod(b("perm"), 0o500),
    ]
}

/// A layer after its run, about which no person can be asked.
fn left_behind(mode: LayerMode) -> Scene {
    let scene = Scene::new(mode, &base());
    // An ordinary user's overlay parts the names of a file that is written.
    let parts = |op: &Op| matches!(op, Op::Append(name, _) if mode == LayerMode::User && name != b"plain");
    let operations: Vec<_> = operations().into_iter().filter(|op| !parts(op)).collect();
    let layer = scene.layer(&operations);
    std::fs::write(scene.path("origin"), serde_json::to_vec(&layer.origin()).unwrap()).unwrap();
    drop(layer);
    if mode == LayerMode::User {
        give(&scene.path("layers"));
    }
    scene
}

/// Paths that are not as they would be without a sandbox.
fn wrong(scene: &Scene) -> Vec<String> {
    let (found, wanted) = (scene.found(), scene.wanted());
    let paths: std::collections::BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let differs = paths.into_iter().filter(|path| found.get(*path) != wanted.get(*path));
    differs.map(|path| String::from_utf8_lossy(path).into_owned()).collect()
}

#[test]
fn copies_commit_the_same_as_the_layers_own_entries() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let scene = left_behind(mode);
        let order = scene.dir.path().to_str().unwrap();
        scene.child("child_adopts_and_commits", order, &[], false).unwrap_or_else(|output| panic!("{output}"));
        assert_eq!(wrong(&scene), Vec::<String>::new(), "{mode:?}");
        assert!(!scene.path("layers/run").exists());
    }
}

#[test]
fn a_copy_killed_at_any_action_loses_nothing() {
    // Modes count: an ordinary user's copy opens up what the run closed to its owner.
    for mode in [LayerMode::Root, LayerMode::User] {
        kill_the_copy_anywhere(mode);
    }
}

fn kill_the_copy_anywhere(mode: LayerMode) {
    let mut before = 0;
    for kill_at in 1_u32..400 {
        let scene = left_behind(mode);
        let old = scene.found();
        let order = scene.dir.path().to_str().unwrap();
        let at = kill_at.to_string();
        let survived = scene.child("child_adopts_and_commits", order, &[("NEXUS_LAYER_ABORT_AT", &at)], false);
        if survived.is_err() && scene.found() == old && !scene.path("layers/run/journal").exists() {
            before += 1;
            scene.child("child_adopts_and_commits", order, &[], false).unwrap_or_else(|output| panic!("{output}"));
            assert_eq!(wrong(&scene), Vec::<String>::new(), "{mode:?} killed at {kill_at}");
            continue;
        }
        // The commit was decided: `crash` holds the rest.
        scene.child("child_recovers", order, &[], false).unwrap_or_else(|output| panic!("{output}"));
        assert_eq!(wrong(&scene), Vec::<String>::new(), "{mode:?} killed at {kill_at}");
        assert!(before > 5, "only {before} places before the decision");
        return;
    }
    panic!("the commit was never decided");
}

/// Mode, group, access lists and a user's attribute of the workspace's own directory.
#[test]
fn a_copy_keeps_the_attributes_of_the_directory_itself() {
    let of = |scene: &Scene| {
        let meta = std::fs::metadata(scene.ws()).unwrap();
        let attr = |name| {
            let mut value = [0; 100];
            let length = rustix::fs::getxattr(scene.ws(), name, &mut value).unwrap();
            value[..length].to_vec()
        };
        (meta.mode(), meta.gid(), attr("user.note"), attr("system.posix_acl_default"))
    };
    let scene = scene();
    std::os::unix::fs::chown(scene.ws(), None, Some(888)).unwrap();
    rustix::fs::chmod(scene.ws(), rustix::fs::Mode::from_raw_mode(0o2775)).unwrap();
    rustix::fs::setxattr(scene.ws(), "user.note", b"1", rustix::fs::XattrFlags::CREATE).unwrap();
    // Version 2; owner rwx, group r-x, others nothing (acl(5), as the kernel's posix_acl_xattr.h has it).
    let entries = [(1_u16, 7_u16), (4, 5), (0x20, 0)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions) in entries {
        list.extend(tag.to_le_bytes().into_iter().chain(permissions.to_le_bytes()).chain([0xff; 4]));
    }
    rustix::fs::setxattr(scene.ws(), "system.posix_acl_default", &list, rustix::fs::XattrFlags::CREATE).unwrap();
    let before = of(&scene);
    let layer = layer(&scene);
    let _held = written(&layer);
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((result.state, result.parked.len()), (CommitState::Committed, 0), "{result:?}");
    assert!(result.changes.changes.iter().all(|one| one.path.0 != b"."), "{:?}", result.changes);
    assert_eq!(of(&scene), before);
}
