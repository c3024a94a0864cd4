//! Indexes of git by which git would take a changed file for an unchanged one: with the real git.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Scene, wait_for_tick};
use nexus_layer::{Committed, Layer, LayerMode, Rules};
use repository::git;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

/// A repository with the files `a`, `b` and `src/c`, which are older than its index, and what it is configured.
fn scene(config: &[[&str; 2]]) -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main"]);
    for [name, value] in config {
        git(&ws, &["config", name, value]);
    }
    fs::create_dir(ws.join("src")).unwrap();
    for name in ["a", "b", "src/c"] {
        fs::write(ws.join(name), "1\n").unwrap();
        make_old(&ws.join(name));
    }
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "1"]);
    wait_for_tick(scene.dir.path());
    scene
}

fn make_old(file: &Path) {
    assert!(Command::new("touch").args(["-d", "2020-01-01"]).arg(file).status().unwrap().success());
}

/// A layer with the repository's own index.
fn layer(scene: &Scene) -> Layer {
    let layer = scene.layer(&[]);
    fs::create_dir(layer.upper().join(".git")).unwrap();
    fs::copy(scene.ws().join(".git/index"), layer.upper().join(".git/index")).unwrap();
    layer
}

/// Gives the entry of a file in an index the data of that file as it is now. The object id stays.
fn forge(index: &Path, name: &str, file: &Path) {
    let mut bytes = fs::read(index).unwrap();
    let named = [name.as_bytes(), b"\0"].concat();
    // 62 bytes of an entry come before its name.
    let begin = bytes.windows(named.len()).position(|part| part == named).unwrap() - 62;
    let meta = fs::metadata(file).unwrap();
    let low = |number: u64| u32::try_from(number & 0xffff_ffff).unwrap();
    let time = |seconds: i64| u32::try_from(seconds).unwrap();
    let nanos = |number: i64| u32::try_from(number).unwrap();
    let data = [
        (0, time(meta.ctime())),
        (4, nanos(meta.ctime_nsec())),
        (8, time(meta.mtime())),
        (12, nanos(meta.mtime_nsec())),
        (16, low(meta.dev())),
        (20, low(meta.ino())),
        (28, meta.uid()),
        (32, meta.gid()),
        (36, low(meta.size())),
    ];
    for (at, number) in data {
        bytes[begin + at..begin + at + 4].copy_from_slice(&number.to_be_bytes());
    }
    without_checksum(&mut bytes);
    fs::write(index, bytes).unwrap();
}

/// As with `index.skipHash`: one that does not fit would keep the index back.
fn without_checksum(bytes: &mut [u8]) {
    let end = bytes.len() - 20;
    bytes[end..].fill(0);
}

fn commit(scene: &Scene, layer: &Layer) -> Committed {
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert!(result.conflicts.is_empty() && result.parked.is_empty(), "{result:?}");
    result
}

fn status(scene: &Scene) -> String {
    git(&scene.ws(), &["status", "--short"])
}

#[test]
fn an_index_hides_no_file_that_its_layer_brings() {
    // git compares no time that a commit sets.
    let scene = scene(&[["core.trustctime", "false"]]);
    let layer = layer(&scene);
    let file = layer.upper().join("a");
    fs::write(&file, "EVIL\n").unwrap();
    make_old(&file);
    forge(&layer.upper().join(".git/index"), "a", &file);
    commit(&scene, &layer);
    assert_eq!(status(&scene), " M a\n");
    assert!(git(&scene.ws(), &["diff", "HEAD"]).contains("+EVIL"));
    assert!(!git(&scene.ws(), &["fsck"]).contains("error"));
}

#[test]
fn an_index_hides_no_edit_of_the_user() {
    let scene = scene(&[]);
    fs::write(scene.ws().join("b"), "an edit\n").unwrap();
    make_old(&scene.ws().join("b"));
    wait_for_tick(scene.dir.path());
    let layer = layer(&scene);
    forge(&layer.upper().join(".git/index"), "b", &scene.ws().join("b"));
    commit(&scene, &layer);
    assert_eq!(status(&scene), " M b\n");
}

/// The ids of directories in an index are those of HEAD, the entries are others.
#[test]
fn an_index_hides_no_entry_behind_its_directory() {
    let scene = scene(&[]);
    let copy = scene.path("copy");
    assert!(Command::new("cp").arg("-a").arg(scene.ws()).arg(&copy).status().unwrap().success());
    // 20 bytes for the id of the directory, which git took out when the entry changed.
    let directory = git(&copy, &["rev-parse", "HEAD:src"]);
    let id: Vec<u8> = (0..20).map(|at| u8::from_str_radix(&directory[2 * at..2 * at + 2], 16).unwrap()).collect();
    fs::write(copy.join("src/c"), "EVIL\n").unwrap();
    git(&copy, &["add", "src/c"]);
    let layer = layer(&scene);
    let mut bytes = fs::read(copy.join(".git/index")).unwrap();
    let invalid = b"src\0-1 0\n";
    let at = bytes.windows(invalid.len()).position(|part| part == invalid).unwrap();
    bytes.splice(at..at + invalid.len(), [&b"src\x001 0\n"[..], &id].concat());
    let tree = bytes.windows(4).position(|part| part == b"TREE").unwrap() + 4;
    let size = u32::from_be_bytes(bytes[tree..tree + 4].try_into().unwrap());
    bytes[tree..tree + 4].copy_from_slice(&(size + 19).to_be_bytes());
    without_checksum(&mut bytes);
    fs::write(layer.upper().join(".git/index"), bytes).unwrap();
    fs::create_dir(layer.upper().join("src")).unwrap();
    fs::write(layer.upper().join("src/c"), "EVIL\n").unwrap();
    let id = git(&copy, &["rev-parse", ":src/c"]);
    let object = format!(".git/objects/{}/{}", &id[..2], id[2..].trim());
    fs::create_dir_all(layer.upper().join(&object).parent().unwrap()).unwrap();
    fs::copy(copy.join(&object), layer.upper().join(&object)).unwrap();
    commit(&scene, &layer);
    assert_eq!(status(&scene), "M  src/c\n");
}

/// `git update-index --fsmonitor-valid`: git asks the user's monitor alone, which knows of no change.
#[test]
fn an_index_hides_no_file_from_a_monitor() {
    let scene = scene(&[["core.fsmonitorHookVersion", "2"]]);
    let monitor = scene.path("monitor");
    fs::write(&monitor, "#!/bin/sh\nprintf 'token\\0'\n").unwrap();
    fs::set_permissions(&monitor, fs::Permissions::from_mode(0o755)).unwrap();
    git(&scene.ws(), &["config", "core.fsmonitor", monitor.to_str().unwrap()]);
    git(&scene.ws(), &["status"]);
    wait_for_tick(scene.dir.path());
    let layer = layer(&scene);
    fs::write(layer.upper().join("a"), "EVIL\n").unwrap();
    let copy = scene.path("copy");
    assert!(Command::new("cp").arg("-a").arg(scene.ws()).arg(&copy).status().unwrap().success());
    fs::copy(layer.upper().join("a"), copy.join("a")).unwrap();
    git(&copy, &["update-index", "--fsmonitor-valid", "a"]);
    assert_eq!(git(&copy, &["ls-files", "-f", "a"]), "h a\n");
    fs::copy(copy.join(".git/index"), layer.upper().join(".git/index")).unwrap();
    commit(&scene, &layer);
    assert_eq!(status(&scene), " M a\n");
}

/// After `git add` and `git commit` in a run nothing waits, and git on the host reads only what the run changed.
#[test]
fn git_reads_again_only_what_a_run_changed() {
    let scene = scene(&[]);
    let layer = layer(&scene);
    let index = layer.upper().join(".git/index");
    fs::write(layer.upper().join("a"), "2\n").unwrap();
    let work = |arguments: &[&str]| {
        let git_dir = scene.ws().join(".git");
        let mut command = Command::new("git");
        command.args(["-c", "safe.directory=*"]).args(arguments).current_dir(layer.upper());
        command.env("GIT_DIR", &git_dir).env("GIT_INDEX_FILE", &index).env("GIT_WORK_TREE", layer.upper());
        let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    work(&["add", "a"]);
    commit(&scene, &layer);
    let data = |name: &str| git(&scene.ws(), &["ls-files", "--debug", name]);
    let is_known = |name: &str| !data(name).contains("mtime: 0:0");
    assert_eq!(["a", "b", "src/c"].map(is_known), [false, true, true], "{}", data("."));
    assert_eq!(status(&scene), "M  a\n");
    assert_eq!(["a", "b", "src/c"].map(is_known), [true; 3], "{}", data("."));
}
