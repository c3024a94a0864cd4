//! Foreign things in a workspace or a layer: a mount of another file system, a device node, attributes that
//! a reader in another user namespace does not see.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, child_by, snapshot, write};
use nexus_layer::review::diff::{DiffOptions, RenderOptions};
use nexus_layer::{CommitError, CommitState, Layer, LayerMode, ReadLayerError, Rules, Workspace, recover};
use rustix::fs::{CWD, FileType, Mode};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The scene of a child, and its layer, which the parent parked.
fn of_parent() -> (PathBuf, Workspace, Layer) {
    let scene = PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    let layer = Layer::open(&scene.join("layers"), "run").unwrap();
    (scene, workspace, layer)
}

/// A mounted file system with one file, wherever its place is moved to.
struct Foreign(fs::File);

impl Foreign {
    fn mount(at: &Path, file: &str) -> Self {
        mount("none", at, "tmpfs", MountFlags::empty(), None).unwrap();
        fs::write(at.join(file), "foreign\n").unwrap();
        Self(fs::File::open(at).unwrap())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    fn is_whole(&self, file: &str) {
        let names: Vec<_> = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [file]);
        assert_eq!(fs::read_to_string(self.path().join(file)).unwrap(), "foreign\n");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        unmount(self.path(), UnmountFlags::DETACH).unwrap();
    }
}

#[test]
#[ignore = "the child of the other tests"]
fn child_mounts_below_the_trees() {
    let (scene, workspace, layer) = of_parent();
    // Mounted after the run: first over what it changed, then below what it deleted.
    let over = Foreign::mount(&scene.join("ws/d"), "f");
    if let Ok(diff) = layer.diff(&workspace, &Rules::default(), &DiffOptions::default()) {
        let text = String::from_utf8(diff.render(&RenderOptions::default()).bytes).unwrap();
        assert!(!text.contains("foreign"), "the mount was read: {text}");
    }
    match layer.commit(&workspace, &Rules::default()) {
        Ok(done) => {
            assert_eq!(done.state, CommitState::Parked, "{done:?}");
            assert!(done.conflicts.iter().any(|one| one.path.as_path() == Path::new("d")), "{done:?}");
        }
        Err(error) => assert!(format!("{error:?}").contains("CrossesDevices"), "{error:?}"),
    }
    over.is_whole("f");
    drop(over);
    let deleted = Foreign::mount(&scene.join("ws/gone/m"), "kept");
    let done = layer.commit(&workspace, &Rules::default());
    deleted.is_whole("kept");
    assert!(scene.join("ws/gone/m/kept").exists(), "{done:?}");
    drop(deleted);
    let below = Foreign::mount(&layer.upper().join("d"), "f");
    // What cannot be removed is set aside, or is an error.
    if let Ok(left) = layer.discard() {
        assert!(left.is_some(), "a removal went through a mount");
    }
    below.is_whole("f");
}

#[test]
fn no_other_mount_is_read_written_or_removed() {
    let base = [Op::Mkdir(b("d")), write("d/f", "old\n"), Op::Mkdir(b("gone")), Op::Mkdir(b("gone/m"))];
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&[write("d/f", "new\n"), write("d/g", "new\n"), Op::RemoveTree(b("gone"))]);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    let order = scene.dir.path().to_str().unwrap();
    scene.child("child_mounts_below_the_trees", order, &[], true).unwrap();
}

#[test]
#[ignore = "the child of the other tests"]
fn child_reads_in_a_user_namespace() {
    let (scene, workspace, layer) = of_parent();
    assert!(rustix::process::geteuid().is_root(), "root of the user namespace");
    let error = layer.changes(&workspace, &Rules::default()).unwrap_err();
    assert!(matches!(error, ReadLayerError::Blind), "{error}");
    let error = layer.commit(&workspace, &Rules::default()).unwrap_err();
    assert!(matches!(error, CommitError::Read(ReadLayerError::Blind)), "{error}");
    drop(layer);
    assert!(scene.join("layers/run/upper/d").is_dir());
}

/// Overlay's marks of a layer of root are `trusted.*` attributes, which only root of the machine sees. Without them a
/// directory that the run made again looks like one that it filled.
#[test]
fn a_reader_that_sees_no_marks_decides_nothing() {
    let base = [Op::Mkdir(b("d")), write("d/hidden", "old")];
    let scene = Scene::new(LayerMode::Root, &base);
    let before = scene.found();
    let layer = scene.layer(&[Op::RemoveTree(b("d")), Op::Mkdir(b("d")), write("d/new", "new")]);
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    let order = scene.dir.path().to_str().unwrap();
    child_by(&["unshare", "-Ur"], "child_reads_in_a_user_namespace", order, &[]).unwrap();
    assert_eq!(scene.found(), before);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(scene.found(), scene.wanted());
}

/// Every device node below a directory.
fn devices(top: &Path) -> Vec<PathBuf> {
    use std::os::unix::fs::FileTypeExt as _;
    let mut found = Vec::new();
    let mut stack = vec![top.to_owned()];
    while let Some(path) = stack.pop() {
        for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                stack.push(entry.path());
            } else if kind.is_char_device() || kind.is_block_device() {
                found.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn a_device_node_in_memory_is_never_made_on_the_disk() {
    for park_first in [false, true] {
        let scene = Scene::new(LayerMode::Root, &[write("old", "old")]);
        let mut layer = Layer::create(&scene.path("layers"), "run", &scene.workspace(), LayerMode::Root).unwrap();
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::write(memory.path().join("file"), "new").unwrap();
        for (name, device) in [("null", rustix::fs::makedev(1, 3)), ("old", 0)] {
            let kind = FileType::CharacterDevice;
            rustix::fs::mknodat(CWD, memory.path().join(name), kind, Mode::from_raw_mode(0o666), device).unwrap();
        }
        layer = layer.with_upper(fs::File::open(memory.path()).unwrap().into());
        if park_first {
            layer.park(&scene.workspace(), &Rules::default()).unwrap();
            let kept = devices(&scene.path("layers"));
            assert_eq!(kept, [scene.path("layers/run/upper/old")], "only the mark of a deletion");
            drop(layer);
            layer = Layer::open(&scene.path("layers"), "run").unwrap();
        }
        let done = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(done.conflicts, []);
        drop(layer);
        recover(&scene.path("layers"), "run", &scene.workspace()).unwrap();
        let names: Vec<_> = snapshot(&scene.ws(), false).into_keys().collect();
        assert_eq!(names, [b("file")], "park first: {park_first}");
        assert_eq!(devices(&scene.path("layers")), [] as [PathBuf; 0]);
    }
}
