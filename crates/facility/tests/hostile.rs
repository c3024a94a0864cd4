//! Hostile and large layers, and layers on another file system.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, run_operations_of_parent, snapshot};
use nexus_facility::{Layer, LayerMode, Rules, recover};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

fn b(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn scene() -> Scene {
    Scene::new(LayerMode::Root, &[])
}

fn layer(scene: &Scene) -> Layer {
    Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap()
}

/// Runs `work` while `dir` is swapped with a link to `outside` as fast as another thread can.
fn while_swapped(dir: &Path, outside: &Path, work: impl FnOnce()) {
    let spare = dir.with_extension("spare");
    symlink(outside, &spare).unwrap();
    let (stop, (started, swaps)) = (AtomicBool::new(false), std::sync::mpsc::channel());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let started = started;
            while !stop.load(Ordering::Relaxed) {
                // Once the directory or the link is removed there is nothing to swap.
                let swapped = rustix::fs::renameat_with(CWD, dir, CWD, &spare, rustix::fs::RenameFlags::EXCHANGE);
                started.send(swapped.is_ok()).ok();
            }
        });
        assert!(swaps.recv_timeout(Duration::from_secs(10)).unwrap(), "the first swap works");
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

fn canary() -> tempfile::TempDir {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    for name in ["f0", "f1", "canary"] {
        std::fs::write(outside.path().join(name), "alive").unwrap();
    }
    std::fs::create_dir(outside.path().join("sub")).unwrap();
    outside
}

fn is_untouched(outside: &Path) {
    let names: Vec<_> = snapshot(outside, false).into_iter().map(|(name, entry)| (name, entry.2)).collect();
    let wanted = [("canary", "alive"), ("f0", "alive"), ("f1", "alive"), ("sub", "")];
    assert_eq!(names, wanted.map(|(name, text)| (b(name), b(text))));
}

#[test]
fn a_workspace_directory_swapped_for_a_link_never_leads_a_commit_outside() {
    let outside = canary();
    for _ in 0..40 {
        let base = [
            Op::Mkdir(b("d")),
            Op::Mkdir(b("d/sub")),
            Op::Write(b("d/f0"), "old".into()),
            Op::Write(b("d/f1"), "old".into()),
        ];
        let scene = Scene::new(LayerMode::Root, &base);
        let mut ops = vec![Op::Remove(b("d/f1")), Op::RemoveTree(b("d/sub"))];
        ops.extend((0..60).map(|n| Op::Write(b(&format!("d/new{n}")), "x".into())));
        ops.push(Op::Append(b("d/f0"), "x".into()));
        let layer = scene.layer(&ops);
        while_swapped(&scene.ws().join("d"), outside.path(), || {
            // It may fail or report conflicts; what counts is the folder outside.
            layer.commit(&scene.workspace(), &Rules::default()).ok();
            drop(layer);
            for _ in 0..3 {
                recover(&scene.path("layers"), "run", &scene.workspace()).ok();
            }
        });
        is_untouched(outside.path());
    }
}

#[test]
fn a_layer_directory_swapped_for_a_link_never_leads_a_removal_outside() {
    let outside = canary();
    for _ in 0..40 {
        let scene = scene();
        let layer = layer(&scene);
        let dir = layer.upper().join("d");
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        for n in 0..60 {
            std::fs::write(dir.join(format!("f{n}")), "x").unwrap();
        }
        while_swapped(&dir, outside.path(), || {
            layer.changes(&scene.workspace(), &Rules::default()).ok();
            layer.discard().ok();
        });
        is_untouched(outside.path());
    }
}

#[test]
fn a_fifo_where_a_file_is_expected_stops_nobody() {
    let base = [Op::Mkdir(b(".git")), Op::Write(b(".git/config"), "x".into()), Op::Write(b("f"), String::new())];
    let scene = Scene::new(LayerMode::Root, &base);
    let ops = [
        Op::Remove(b(".git/config")),
        Op::Fifo(b(".git/config")),
        Op::Remove(b("f")),
        Op::Fifo(b("f")),
        Op::Fifo(b("new")),
    ];
    let layer = scene.layer(&ops);
    let (sender, receiver) = std::sync::mpsc::channel();
    let workspace = scene.workspace();
    let worker = std::thread::spawn(move || {
        let result = layer.commit(&workspace, &Rules::default());
        sender.send(()).unwrap();
        result.unwrap()
    });
    receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    let result = worker.join().unwrap();
    assert_eq!(result.parked.len(), 1, "{:?}", result.parked);
    let found = scene.found();
    assert_eq!(
        (found[b"f".as_slice()].0, found[b"new".as_slice()].0, found[b".git/config".as_slice()].0),
        ('p', 'p', 'f')
    );
}

/// Makes `levels` nested directories and a file in the last one.
fn deep(root: &Path, name: &str, levels: usize) {
    let mut dir = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..levels {
        rustix::fs::mkdirat(dir.as_fd(), name, Mode::from_raw_mode(0o755)).unwrap();
        dir = rustix::fs::openat(dir.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    rustix::fs::openat(dir.as_fd(), "end", OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o644)).unwrap();
}

/// How deep the chain of `name` is that [`deep`] made, when its file is there.
fn depth(root: &Path, name: &str) -> usize {
    let mut dir = rustix::fs::open(root, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut levels = 0;
    while let Ok(next) = rustix::fs::openat(dir.as_fd(), name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
        dir = next;
        levels += 1;
    }
    assert!(rustix::fs::statat(dir.as_fd(), "end", AtFlags::empty()).is_ok());
    levels
}

#[test]
fn a_tree_deeper_than_the_longest_path_commits_moved_and_copied() {
    for elsewhere in [false, true] {
        let scene = scene();
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let layers = if elsewhere { other.path().to_owned() } else { scene.path("layers") };
        let layer = Layer::create(&layers, "run", &scene.workspace(), LayerMode::Root).unwrap();
        deep(&layer.upper(), "a_name_of_16_byte", 600);
        // In a directory that exists the entries go one by one.
        std::fs::create_dir(scene.ws().join("d")).unwrap();
        std::fs::create_dir(layer.upper().join("d")).unwrap();
        deep(&layer.upper().join("d"), "a_name_of_16_byte", 600);
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0));
        assert_eq!(depth(&scene.ws(), "a_name_of_16_byte"), 600);
        assert_eq!(depth(&scene.ws().join("d"), "a_name_of_16_byte"), 600);
        assert!(!layers.join("run").exists());
        // Ours to remove: the temporary folder's own removal may not manage such a path.
        std::process::Command::new("rm").arg("-rf").arg(scene.ws()).status().unwrap();
    }
}

#[test]
fn fifty_thousand_new_files_commit_in_seconds() {
    let scene = scene();
    std::fs::create_dir(scene.ws().join("there")).unwrap();
    common::wait_for_tick(&scene.ws());
    let layer = layer(&scene);
    for folder in 0..500 {
        // Half of them one by one, in a directory that exists; half with their directory.
        let parent = layer.upper().join(if folder % 2 == 0 { "there" } else { "new" }).join(folder.to_string());
        std::fs::create_dir_all(&parent).unwrap();
        for file in 0..100 {
            std::fs::write(parent.join(file.to_string()), "x").unwrap();
        }
    }
    let started = Instant::now();
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    let took = started.elapsed();
    assert_eq!((result.changes.counts().0, result.parked.len(), result.conflicts.len()), (50_501, 0, 0));
    assert!(took < Duration::from_secs(20), "took {took:?}");
}

/// Files of every kind, in a layer on another file system: everything is copied.
#[test]
fn a_layer_on_another_file_system_is_copied_whole() {
    for by_descriptor in [false, true] {
        let base = [
            Op::Write(b("f"), "old".into()),
            Op::Mkdir(b("d")),
            Op::Write(b("d/x"), "old".into()),
            Op::Write(b("gone"), String::new()),
        ];
        let scene = Scene::new(LayerMode::Root, &base);
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let here = tempfile::tempdir_in(scene.dir.path()).unwrap();
        // The descriptor's layer has its folder beside the workspace and only its upper directory elsewhere.
        let layers = if by_descriptor { here.path() } else { other.path() };
        let mut layer = Layer::create(layers, "run", &scene.workspace(), LayerMode::Root).unwrap();
        let upper: PathBuf = if by_descriptor { other.path().to_owned() } else { layer.upper() };
        for (root, is_layer) in [(&upper, true), (&scene.path("plain"), false)] {
            std::fs::create_dir_all(root.join("d")).unwrap();
            std::fs::write(root.join("f"), "new").unwrap();
            std::fs::write(root.join("d/y"), "new").unwrap();
            std::fs::hard_link(root.join("d/y"), root.join("link")).unwrap();
            std::fs::create_dir_all(root.join("n/m")).unwrap();
            std::fs::write(root.join("n/m/z"), "z").unwrap();
            std::fs::hard_link(root.join("d/y"), root.join("n/link")).unwrap();
            std::fs::set_permissions(root.join("n/m/z"), std::fs::Permissions::from_mode(0o640)).unwrap();
            std::fs::set_permissions(root.join("n/m"), std::fs::Permissions::from_mode(0o750)).unwrap();
            symlink("nowhere", root.join("n/dangling")).unwrap();
            rustix::fs::mkfifoat(CWD, root.join("n/fifo"), Mode::from_raw_mode(0o600)).unwrap();
            rustix::fs::setxattr(root.join("n/m"), "user.test", b"v", rustix::fs::XattrFlags::empty()).unwrap();
            rustix::fs::setxattr(root.join("n/m/z"), "user.test", b"w", rustix::fs::XattrFlags::empty()).unwrap();
            common::run_op(root, &Op::Sparse(b("n/sparse"))).unwrap();
            if is_layer {
                let kind = rustix::fs::FileType::CharacterDevice;
                rustix::fs::mknodat(CWD, root.join("gone"), kind, Mode::empty(), 0).unwrap();
            } else {
                std::fs::remove_file(root.join("gone")).unwrap();
            }
        }
        if by_descriptor {
            layer = layer.with_upper(std::fs::File::open(&upper).unwrap().into());
            assert_eq!(layer.changes(&scene.workspace(), &Rules::default()).unwrap().counts().2, 1);
        }
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0), "{result:?}");
        assert_eq!(scene.found(), scene.wanted());
        let sparse = std::fs::metadata(scene.ws().join("n/sparse")).unwrap();
        assert!(std::os::unix::fs::MetadataExt::blocks(&sparse) * 512 < 100_000, "the hole was filled");
        assert!(!layers.join("run").exists());
    }
}

#[test]
fn discarding_copes_with_overlays_own_locked_folder_and_with_links() {
    let outside = canary();
    let scene = Scene::new(LayerMode::User, &[]);
    let layer = scene.layer(&[Op::Mkdir(b("d")), Op::Write(b("d/x"), String::new()), Op::Chmod(b("d"), 0)]);
    symlink(outside.path(), layer.upper().join("link")).unwrap();
    layer.discard().unwrap();
    assert!(!scene.path("layers/run").exists());
    is_untouched(outside.path());
}
