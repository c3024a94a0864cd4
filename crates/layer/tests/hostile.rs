//! Hostile and large layers, and layers on another file system.
//!
//! The tests name the vectors of the threat list that they hold: F02 a link to a file of the host, F03 a dangling link
//! as the target of a write, F04 a hard link to a file outside, F05 a fifo, socket or directory as a file, F09 the
//! removal of a tree with links to directories of the host, F10 a move by copy and removal while paths are swapped.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, snapshot};
use nexus_layer::review::diff::{Choice, DiffOptions};
use nexus_layer::{CommitState, Layer, LayerMode, Rules, recover};
use nexus_model::ByteText;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn scene() -> Scene {
    Scene::new(LayerMode::Root, &[])
}

fn layer(scene: &Scene) -> Layer {
    let mut layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
    layer.set_unreached();
    layer
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` while `dir` is swapped with a link to `outside` as fast as another thread can.
fn while_swapped(dir: &Path, outside: &Path, work: impl FnOnce()) {
    let pool = dir.with_extension("spare");
    symlink(outside, &pool).unwrap();
    let (stop, (started, swaps)) = (AtomicBool::new(false), std::sync::mpsc::channel());
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let started = started;
            while !stop.load(Ordering::Relaxed) {
                // Once the directory or the link is removed there is nothing to swap.
                let swapped = rustix::fs::renameat_with(CWD, dir, CWD, &pool, rustix::fs::RenameFlags::EXCHANGE);
                started.send(swapped.is_ok()).ok();
            }
        });
        assert!(swaps.recv_timeout(Duration::from_secs(10)).unwrap(), "the first swap works");
        // Also after a failed assertion, or the scope would wait for the swaps for ever.
        let _stop = StopAtEnd(&stop);
        work();
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

/// F02, F10: while a commit walks through it.
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
        let scene = Scene::one_of_many(LayerMode::Root, &base);
        let mut ops = vec![Op::Remove(b("d/f1")), Op::RemoveTree(b("d/sub"))];
        ops.extend((0..60).map(|n| Op::Write(b(&format!("d/new{n}")), "x".into())));
        ops.push(Op::Append(b("d/f0"), "x".into()));
        let layer = scene.layer(&ops);
        while_swapped(&scene.ws().join("d"), outside.path(), || {
            // It may fail or report conflicts; what counts is the directory outside.
            layer.commit(&scene.workspace(), &Rules::default()).ok();
            drop(layer);
            for _ in 0..3 {
                recover(&scene.path("layers"), "run", &scene.workspace()).ok();
            }
        });
        is_untouched(outside.path());
    }
}

/// Thirty lines, some of them replaced.
fn lines(changed: &[usize]) -> String {
    (0..30).map(|at| if changed.contains(&at) { "new\n".to_owned() } else { format!("{at}\n") }).collect()
}

/// Accepts parts of a layer of [`swapped_scene`]: some paths of it, or some lines of its file. It may fail or report
/// conflicts; what counts is the outside.
fn accept_a_part(scene: &Scene, by_lines: bool) {
    let Ok(layer) = Layer::open(&scene.path("layers"), "run") else { return };
    if by_lines {
        let (path, options) = (ByteText::from("p/d/f0"), DiffOptions::default());
        let choice = Choice { path: &path, hunks: &[1], seen: None, options: &options };
        layer.accept_hunks(&scene.workspace(), &Rules::default(), &choice).ok();
    } else {
        let only = ["p/d/f0", "p/d/f1", "p/d/sub", "p/d/new0", "p/d/n"].map(ByteText::from).to_vec();
        layer.commit(&scene.workspace(), &Rules { only: Some(only), ..Rules::default() }).ok();
    }
}

/// A parked layer with a change of each kind in the directory `p/d`.
fn swapped_scene() -> Scene {
    let base = [
        Op::Mkdir(b("p")),
        Op::Mkdir(b("p/d")),
        Op::Mkdir(b("p/d/sub")),
        Op::Write(b("p/d/f0"), lines(&[])),
        Op::Write(b("p/d/f1"), "old".into()),
    ];
    let scene = Scene::new(LayerMode::Root, &base);
    let mut ops = vec![
        Op::Remove(b("p/d/f1")),
        Op::RemoveTree(b("p/d/sub")),
        Op::Mkdir(b("p/d/n")),
        Op::Write(b("p/d/n/x"), "x".into()),
    ];
    ops.extend((0..20).map(|n| Op::Write(b(&format!("p/d/new{n}")), "x".into())));
    ops.push(Op::Write(b("p/d/f0"), lines(&[2, 15, 28])));
    scene.layer(&ops).park(&scene.workspace(), &Rules::default()).unwrap();
    scene
}

/// F02, F10: the directory, one above it or the file itself, of the workspace or of the layer, while a part is accepted.
#[test]
fn what_is_swapped_for_a_link_never_leads_the_accept_of_a_part_outside() {
    let outside = canary();
    // With the name `d`, so that a way through it looks like the one in the workspace.
    let above = tempfile::tempdir_in("/var/tmp").unwrap();
    let inner = above.path().join("d");
    std::fs::rename(outside.path(), &inner).unwrap();
    let targets = [("p", above.path().to_owned()), ("p/d", inner.clone()), ("p/d/f0", inner.join("f0"))];
    let (mut accepted, mut round) = (0, 0);
    // Where the machine is busy, every accept of the first rounds may meet a swap.
    while round < 60 || (accepted == 0 && round < 300) {
        let (in_layer, by_lines) = (round & 1 == 1, round & 2 == 2);
        let (what, target) = &targets[round / 4 % targets.len()];
        round += 1;
        let scene = swapped_scene();
        let root = if in_layer { scene.path("layers/run/upper") } else { scene.ws() };
        while_swapped(&root.join(what), target, || {
            for _ in 0..4 {
                accept_a_part(&scene, by_lines);
                recover(&scene.path("layers"), "run", &scene.workspace()).ok();
            }
        });
        is_untouched(&inner);
        let arrived = std::fs::symlink_metadata(scene.ws().join("p/d/f0"));
        let is_inside = ["p", "p/d"].iter().all(|dir| !scene.ws().join(dir).is_symlink());
        if is_inside && arrived.is_ok_and(|meta| meta.is_file()) {
            // Nor does the outside come in: its content is "alive".
            let text = std::fs::read_to_string(scene.ws().join("p/d/f0")).unwrap();
            assert!(!text.contains("alive"), "{what} {in_layer} {by_lines}: {text}");
            accepted += usize::from(text != lines(&[]));
        }
    }
    assert!(accepted > 0, "no accept of a part went through: the swaps tested nothing");
}

/// F02, F03: a link in the workspace leads to a file of the host, or to none, where the run has a file; and a link that
/// the run made is a link for everybody.
#[test]
fn links_to_files_of_the_host_are_replaced_read_and_brought_as_links() {
    for by_lines in [false, true] {
        for (target, came_later) in [("f0", false), ("f0", true), ("none", false), ("none", true)] {
            let outside = canary();
            let link = outside.path().join(target);
            let scene = Scene::one_of_many(LayerMode::Root, &[Op::Mkdir(b("d")), Op::Write(b("d/f"), lines(&[]))]);
            let to = link.to_str().unwrap();
            let put_link = || {
                std::fs::remove_file(scene.ws().join("d/f")).unwrap();
                symlink(&link, scene.ws().join("d/f")).unwrap();
                common::wait_for_tick(scene.dir.path());
            };
            if !came_later {
                put_link();
            }
            let mut ops = vec![Op::Symlink(b(to), b("made")), Op::Symlink(b("/nowhere/at/all"), b("dangling"))];
            if !came_later {
                ops.push(Op::Remove(b("d/f")));
            }
            ops.push(Op::Write(b("d/f"), lines(&[2, 28])));
            let layer = scene.layer(&ops);
            layer.park(&scene.workspace(), &Rules::default()).unwrap();
            drop(layer);
            if came_later {
                put_link();
            }
            let layer = Layer::open(&scene.path("layers"), "run").unwrap();
            let shown = layer.diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()).unwrap();
            assert!(!format!("{shown:?}").contains("alive"), "{target}: the diff shows what the link leads to");
            if by_lines {
                let (path, options) = (ByteText::from("d/f"), DiffOptions::default());
                let choice = Choice { path: &path, hunks: &[0], seen: None, options: &options };
                let result = layer.accept_hunks(&scene.workspace(), &Rules::default(), &choice);
                assert!(result.is_err(), "{target}: {result:?}");
            }
            let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
            is_untouched(outside.path());
            let kind = |name: &str| std::fs::symlink_metadata(scene.ws().join(name)).unwrap().file_type();
            if came_later {
                assert_eq!((result.state, result.conflicts.len()), (CommitState::Parked, 1), "{target}: {result:?}");
                assert!(kind("d/f").is_symlink());
            } else {
                assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0), "{target}: {result:?}");
                assert!(kind("d/f").is_file() && kind("made").is_symlink() && kind("dangling").is_symlink());
            }
        }
    }
}

/// F04: an ordinary user's overlay parts the names of a file, and so does the commit. (With root's `index=on` all names
/// of a file change together, as they would without a layer; a run cannot make such a name of a file outside.)
#[test]
fn a_hard_link_to_a_file_outside_is_replaced_and_never_written_through() {
    let scene = Scene::new(LayerMode::User, &[Op::Mkdir(b("d"))]);
    let outside = scene.path("outside");
    std::fs::write(&outside, lines(&[])).unwrap();
    std::os::unix::fs::chown(&outside, Some(common::user()), Some(common::user())).unwrap();
    for name in ["d/all", "d/part"] {
        std::fs::hard_link(&outside, scene.ws().join(name)).unwrap();
        std::fs::write(scene.path("plain").join(name), lines(&[])).unwrap();
        std::os::unix::fs::chown(scene.path("plain").join(name), Some(common::user()), Some(common::user())).unwrap();
    }
    common::wait_for_tick(scene.dir.path());
    let new = lines(&[2, 28]);
    let ops =
        [Op::Append(b("d/all"), "more\n".into()), Op::Write(b("d/part"), new.clone()), Op::Chmod(b("d/all"), 0o600)];
    let layer = scene.layer(&ops);
    let (path, options) = (ByteText::from("d/part"), DiffOptions::default());
    let choice = Choice { path: &path, hunks: &[0], seen: None, options: &options };
    assert_eq!(
        layer.accept_hunks(&scene.workspace(), &Rules::default(), &choice).unwrap().state,
        CommitState::Committed
    );
    assert_eq!(std::fs::read_to_string(scene.ws().join("d/part")).unwrap(), lines(&[2]));
    drop(layer);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0), "{result:?}");
    assert_eq!(std::fs::read_to_string(scene.ws().join("d/part")).unwrap(), new);
    assert_eq!(std::fs::read_to_string(scene.ws().join("d/all")).unwrap(), lines(&[]) + "more\n");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), lines(&[]));
    assert_eq!(std::fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o644);
}

/// F09: see the list of vectors above.
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

/// F05; sockets, devices and directories: `setuid_files_and_device_nodes_never_reach_the_workspace_unasked`,
/// `sockets_are_skipped_and_listed`, `fifos_and_links_in_place_of_files_are_named_and_never_read`.
#[test]
fn a_fifo_where_a_file_is_expected_stops_no_reader() {
    let base = [Op::Mkdir(b(".git")), Op::Write(b(".git/config"), "x".into()), Op::Write(b("f"), String::new())];
    let scene = Scene::one_of_many(LayerMode::Root, &base);
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
    let parked: Vec<_> = result.parked.iter().map(|change| change.path.clone()).collect();
    assert_eq!(parked, [".git/config".into(), "f".into()], "{:?}", result.parked);
    let found = scene.found();
    assert_eq!(
        (found[b"f".as_slice()].0, found[b"new".as_slice()].0, found[b".git/config".as_slice()].0),
        ('f', 'p', 'f')
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

/// Returns the depth of the chain of `name` that [`deep`] made, when its file is there.
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
fn a_tree_nearly_as_deep_as_a_path_commits_moved_and_copied() {
    const LEVELS: usize = 220;
    for elsewhere in [false, true] {
        let scene = scene();
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let layers = if elsewhere { other.path().to_owned() } else { scene.path("layers") };
        let layer = Layer::create(&layers, "run", &scene.workspace(), LayerMode::Root).unwrap();
        deep(&layer.upper(), "a_name_of_16_byte", LEVELS);
        // In a directory that exists the entries go one by one.
        std::fs::create_dir(scene.ws().join("d")).unwrap();
        std::fs::create_dir(layer.upper().join("d")).unwrap();
        deep(&layer.upper().join("d"), "a_name_of_16_byte", LEVELS);
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!((result.conflicts.len(), result.parked.len()), (0, 0));
        assert_eq!(depth(&scene.ws(), "a_name_of_16_byte"), LEVELS);
        assert_eq!(depth(&scene.ws().join("d"), "a_name_of_16_byte"), LEVELS);
        assert!(!layers.join("run").exists());
        // Ours to remove: the temporary directory's own removal may not manage such a path.
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

/// F10: files of every kind, in a layer on another file system: everything is copied.
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
        // The descriptor's layer has its directory beside the workspace and only its upper directory elsewhere.
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

/// F10: the layer lies on another file system, so each move is a copy and a removal.
#[test]
fn a_copying_commit_follows_no_swapped_path_and_removes_nothing_outside() {
    let outside = canary();
    let mut done = 0;
    for in_layer in [false, true].into_iter().cycle().take(20) {
        let base = [Op::Mkdir(b("d")), Op::Mkdir(b("d/sub")), Op::Write(b("d/f1"), "old".into())];
        let scene = Scene::new(LayerMode::Root, &base);
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let layer = Layer::create(other.path(), "run", &scene.workspace(), LayerMode::Root).unwrap();
        let dir = layer.upper().join("d");
        std::fs::create_dir_all(dir.join("sub/deeper")).unwrap();
        for name in ["f0", "f1", "canary", "sub/x", "sub/deeper/x"] {
            std::fs::write(dir.join(name), "x").unwrap();
        }
        for n in 0..30 {
            std::fs::write(dir.join(format!("new{n}")), "x").unwrap();
        }
        let swapped = if in_layer { dir } else { scene.ws().join("d") };
        while_swapped(&swapped, outside.path(), || {
            done += usize::from(layer.commit(&scene.workspace(), &Rules::default()).is_ok());
            drop(layer);
            for _ in 0..3 {
                done += usize::from(recover(other.path(), "run", &scene.workspace()).is_ok());
            }
        });
        is_untouched(outside.path());
        let came_in = std::fs::read_to_string(scene.ws().join("d/f0")).unwrap_or_default();
        assert!(scene.ws().join("d").is_symlink() || came_in != "alive", "content of the outside was copied in");
    }
    assert!(done > 0, "no commit came to its end");
}

/// F09: see the list of vectors above.
#[test]
fn discarding_copes_with_overlays_own_locked_directory_and_with_links() {
    let outside = canary();
    let scene = Scene::new(LayerMode::User, &[]);
    let layer = scene.layer(&[Op::Mkdir(b("d")), Op::Write(b("d/x"), String::new()), Op::Chmod(b("d"), 0)]);
    symlink(outside.path(), layer.upper().join("link")).unwrap();
    layer.discard().unwrap();
    assert!(!scene.path("layers/run").exists());
    is_untouched(outside.path());
}
