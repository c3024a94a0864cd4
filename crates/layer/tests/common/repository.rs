//! A workspace that is a clone, and runs of the real git in it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use crate::common::{Scene, wait_for_tick};
use nexus_layer::{Committed, Layer, LayerMode, Rules};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

pub fn commit_by(scene: &Scene, layer: &Layer, rules: &Rules) -> Committed {
    layer.commit(&scene.workspace(), rules).unwrap()
}

pub fn parked(result: &Committed) -> Vec<String> {
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

pub fn named(paths: &[&str]) -> Rules {
    let paths: Vec<_> = paths.iter().map(|path| (*path).into()).collect();
    Rules { only: Some(paths.clone()), named: paths, ..Rules::default() }
}

pub fn accept(scene: &Scene, rules: &Rules) -> Committed {
    commit_by(scene, &Layer::open(&scene.path("layers"), "run").unwrap(), rules)
}

pub fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b"])
        .args(arguments)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", dir)
        .env("GIT_EDITOR", "true")
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A clone with `origin`, which has the branches `main`, `old` and `topic`.
pub fn cloned_scene() -> Scene {
    scene_like("clone", || {
        let scene = Scene::new(LayerMode::Root, &[]);
        let origin = scene.path("origin.git");
        let here = scene.dir.path();
        git(here, &["init", "-q", "--bare", "-b", "main", origin.to_str().unwrap()]);
        git(here, &["clone", "-q", origin.to_str().unwrap(), scene.ws().to_str().unwrap()]);
        let ws = scene.ws();
        git(&ws, &["checkout", "-q", "-b", "main"]);
        for name in ["f", "src/f"] {
            std::fs::create_dir_all(ws.join("src")).unwrap();
            std::fs::write(ws.join(name), "1").unwrap();
        }
        git(&ws, &["add", "."]);
        git(&ws, &["commit", "-q", "-m", "1"]);
        git(&ws, &["push", "-q", "-u", "origin", "main", "main:topic"]);
        git(&ws, &["checkout", "-q", "-b", "old"]);
        git(&ws, &["push", "-q", "-u", "origin", "old"]);
        git(&ws, &["checkout", "-q", "main"]);
        git(&ws, &["branch", "mine"]);
        git(&ws, &["fetch", "-q"]);
        scene
    })
}

/// A clone with the file `work` in a commit of its own.
pub fn scene_with_work() -> Scene {
    scene_like("clone with work", || {
        let scene = cloned_scene();
        let ws = scene.ws();
        std::fs::write(ws.join("work"), "base\n").unwrap();
        git(&ws, &["add", "."]);
        git(&ws, &["commit", "-q", "-m", "work"]);
        scene
    })
}

/// Returns a scene with the workspace and the origin of the one that `make` makes. `make` is called once for each name in a test
/// program: some ten processes of git take longer than the writing of their files.
pub fn scene_like(name: &str, make: impl FnOnce() -> Scene) -> Scene {
    static MADE: Mutex<BTreeMap<String, Arc<SavedTree>>> = Mutex::new(BTreeMap::new());
    let find = || MADE.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
    let saved = find().unwrap_or_else(|| {
        let saved = Arc::new(SavedTree::of(&make()));
        MADE.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Arc::clone(&saved));
        saved
    });
    let scene = Scene::new(LayerMode::Root, &[]);
    saved.write(&scene);
    if scene.ws().join(".git").exists() {
        // The index names inodes and times, which are others now.
        let told = git(&scene.ws(), &["update-index", "-q", "--refresh"]);
        assert_eq!(told, "", "{name}");
    }
    wait_for_tick(scene.dir.path());
    scene
}

/// The workspace and the origin of a scene, in memory.
struct SavedTree {
    /// The directory of the scene, which is in files of git.
    place: String,
    /// The content of each file, and `None` for a directory, which comes before what is in it.
    entries: Vec<(PathBuf, std::fs::Metadata, Option<Vec<u8>>)>,
}

impl SavedTree {
    fn of(scene: &Scene) -> Self {
        let mut entries = Vec::new();
        let mut waiting = vec![PathBuf::from("ws"), PathBuf::from("origin.git")];
        while let Some(path) = waiting.pop() {
            let place = scene.path("").join(&path);
            let Ok(meta) = std::fs::symlink_metadata(&place) else { continue };
            assert!(meta.is_dir() || (meta.is_file() && meta.nlink() == 1), "{} cannot be saved", path.display());
            if meta.is_dir() {
                waiting.extend(std::fs::read_dir(&place).unwrap().map(|entry| path.join(entry.unwrap().file_name())));
                entries.push((path, meta, None));
            } else {
                entries.push((path, meta, Some(std::fs::read(&place).unwrap())));
            }
        }
        Self { place: scene.dir.path().to_str().unwrap().to_owned(), entries }
    }

    fn write(&self, scene: &Scene) {
        let place = scene.dir.path().to_str().unwrap();
        for (path, meta, content) in &self.entries {
            let at = scene.path("").join(path);
            let Some(content) = content else {
                std::fs::create_dir_all(&at).unwrap();
                continue;
            };
            // The clone names its origin by its path. Objects are compressed, and no index has the path of its directory.
            let text = std::str::from_utf8(content).map(|text| text.replace(&self.place, place));
            std::fs::write(&at, text.as_ref().map_or(&content[..], |text| text.as_bytes())).unwrap();
            let file = std::fs::File::open(&at).unwrap();
            file.set_modified(meta.modified().unwrap()).unwrap();
            file.set_permissions(meta.permissions()).unwrap();
        }
        for (path, meta, _) in self.entries.iter().rev().filter(|(_, _, content)| content.is_none()) {
            let directory = std::fs::File::open(scene.path("").join(path)).unwrap();
            directory.set_permissions(meta.permissions()).unwrap();
            directory.set_modified(meta.modified().unwrap()).unwrap();
        }
    }
}

/// Runs git on a copy of the workspace, and makes the copy what the layer holds: as if the run had done it.
pub fn run_git(scene: &Scene, work: &[&[&str]]) -> Layer {
    run_with(scene, |upper| {
        for arguments in work {
            let told = git(upper, arguments);
            assert!(!told.contains("fatal:") && !told.contains("error:"), "{arguments:?}: {told}");
        }
    })
}

/// Works on a copy of the workspace, and makes the copy what the layer holds.
pub fn run_with(scene: &Scene, work: impl FnOnce(&Path)) -> Layer {
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    let upper = layer.upper();
    assert!(Command::new("cp").arg("-aT").arg(scene.ws()).arg(&upper).status().unwrap().success());
    mark_copies(scene, &upper);
    work(&upper);
    // What is gone is marked as such, a directory as a whole.
    for name in listed(&scene.ws(), |kind| kind.is_file() || kind.is_dir()) {
        let place = upper.join(name);
        if !place.exists() && place.parent().is_some_and(Path::is_dir) {
            let kind = rustix::fs::FileType::CharacterDevice;
            rustix::fs::mknodat(rustix::fs::CWD, &place, kind, rustix::fs::Mode::empty(), 0).unwrap();
        }
    }
    layer
}

/// Lists the entries below a directory whose type is chosen, each directory before what is in it.
fn listed(top: &Path, is_chosen: impl Fn(&std::fs::FileType) -> bool) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(path) = waiting.pop() {
        for entry in std::fs::read_dir(top.join(&path)).unwrap() {
            let entry = entry.unwrap();
            let (name, kind) = (path.join(entry.file_name()), entry.file_type().unwrap());
            if is_chosen(&kind) {
                found.push(name.clone());
            }
            if kind.is_dir() {
                waiting.push(name);
            }
        }
    }
    found
}

/// Marks the directories of a copy as copies of those of the workspace, as overlay does.
fn mark_copies(scene: &Scene, upper: &Path) {
    for name in listed(&scene.ws(), std::fs::FileType::is_dir) {
        let inode = u32::try_from(std::fs::metadata(scene.ws().join(&name)).unwrap().ino()).unwrap();
        // Version, magic number, length, byte order, kind of the handle, identity of the file system, inode, generation.
        let mut mark = vec![0, 0xfb, 29, u8::from(cfg!(target_endian = "big")), 1];
        mark.extend([0; 16]);
        mark.extend(inode.to_ne_bytes());
        mark.extend([0; 4]);
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(upper.join(name), "trusted.overlay.origin", &mark, flags).unwrap();
    }
}

/// The paths that wait after this work in a clone.
pub fn waits_after(work: &[&[&str]]) -> Vec<String> {
    let scene = cloned_scene();
    let result = commit_by(&scene, &run_git(&scene, work), &Rules::default());
    assert!(result.conflicts.is_empty(), "{work:?}: {result:?}");
    parked(&result)
}

/// A clone with packed refs and others, and a run that commits a file and then packs its refs with `last`.
pub fn packed_and_committed(last: &[&str]) -> (Scene, Layer) {
    let scene = scene_like("clone with packed refs", || {
        let scene = cloned_scene();
        git(&scene.ws(), &["tag", "old-tag"]);
        git(&scene.ws(), &["pack-refs", "--all"]);
        git(&scene.ws(), &["branch", "feat"]);
        std::fs::write(scene.ws().join("f"), "2").unwrap();
        git(&scene.ws(), &["commit", "-q", "-a", "-m", "2"]);
        scene
    });
    let layer = run_with(&scene, |upper| {
        std::fs::write(upper.join("g"), "of the run").unwrap();
        for work in [&["add", "."][..], &["commit", "-q", "-m", "of the run"], last] {
            git(upper, work);
        }
    });
    (scene, layer)
}
