//! Files of git with further names: written through another name, no rule about git would see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, b, write};
use nexus_layer::{LayerMode, Rules};
use repository::{accept, cloned_scene, commit_by, git, parked};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A clone with a packed history and a new commit in loose objects, and a bare clone of it.
fn scene() -> Scene {
    let scene = cloned_scene();
    let ws = scene.ws();
    git(&ws, &["gc", "-q"]);
    fs::write(ws.join("new"), "new\n").unwrap();
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "new"]);
    git(&ws, &["clone", "-q", "--bare", "--no-hardlinks", ".", "b.git"]);
    copy_to_plain(&scene);
    scene
}

fn copy_to_plain(scene: &Scene) {
    fs::remove_dir_all(scene.path("plain")).ok();
    assert!(Command::new("cp").arg("-a").args([scene.ws(), scene.path("plain")]).status().unwrap().success());
    common::wait_for_tick(scene.dir.path());
}

/// The files of git directories that an attack would write.
fn targets(ws: &Path) -> Vec<String> {
    let listed = Command::new("find").args([".git", "b.git", "-type", "f"]).current_dir(ws).output().unwrap();
    let parts = ["/objects/", "HEAD", "/refs/", "index", "/packed-refs", "/logs/"];
    let is_one = |path: &&str| parts.iter().any(|part| path.contains(part)) && !path.contains("/hooks/");
    String::from_utf8_lossy(&listed.stdout).lines().filter(is_one).map(str::to_owned).collect()
}

fn contents(ws: &Path, paths: &[String]) -> BTreeMap<String, (Vec<u8>, u32)> {
    let one = |path: &String| (fs::read(ws.join(path)).unwrap(), fs::metadata(ws.join(path)).unwrap().mode());
    paths.iter().map(|path| (path.clone(), one(path))).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name{number}")).collect()
}

#[test]
fn a_link_to_a_file_of_git_is_a_file_of_its_own() {
    let scene = scene();
    let ws = scene.ws();
    // These wait with several names, whatever else has the other one.
    let waits = |path: &String| path.ends_with("index") || path.ends_with("commit-graph");
    let paths: Vec<String> = targets(&ws).into_iter().filter(|path| !waits(path)).collect();
    assert!(paths.iter().any(|path| path.contains("/pack/pack-")) && paths.len() > 20, "{paths:?}");
    let before = contents(&ws, &paths);
    let links: Vec<Op> =
        paths.iter().zip(names(paths.len())).map(|(path, name)| Op::Link(b(path), name.into())).collect();
    let layer = scene.layer(&links);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    for (path, name) in paths.iter().zip(names(paths.len())) {
        let of = |path: &str| fs::metadata(ws.join(path)).unwrap().ino();
        assert_ne!(of(path), of(&name), "{path}");
        assert_eq!(fs::read(ws.join(path)).unwrap(), fs::read(ws.join(&name)).unwrap(), "{path}");
    }
    assert_eq!(contents(&ws, &paths), before);
}

/// A link that the user made, or an older version.
#[test]
fn a_file_of_git_is_not_written_through_another_name() {
    let gone = |name: &String| [Op::Chmod(b(name), 0o644), write(name, "of the run"), Op::Remove(b(name))];
    let written = |name: &String| [Op::Chmod(b(name), 0o644), write(name, "of the run"), Op::Touch(b(name))];
    let cases = [(false, false), (false, true), (true, false), (true, true)];
    for (is_gone, as_object) in cases {
        let scene = scene();
        let ws = scene.ws();
        let paths = targets(&ws);
        let before = contents(&ws, &paths);
        let mut all = Vec::new();
        for (path, name) in paths.iter().zip(names(paths.len())) {
            let below =
                path.split_once("objects/").filter(|(git_dir, below)| *git_dir == ".git/" && !below.contains("info"));
            // The second name is at a place as that of an object.
            let name = if as_object { below.map(|(_, below)| format!("copy/objects/{below}")) } else { Some(name) };
            let Some(name) = name else { continue };
            fs::create_dir_all(ws.join(&name).parent().unwrap()).unwrap();
            fs::hard_link(ws.join(path), ws.join(&name)).unwrap();
            all.push(name);
        }
        copy_to_plain(&scene);
        let work = if is_gone { &gone as &dyn Fn(&String) -> [Op; 3] } else { &written };
        let mut ops: Vec<Op> = all.iter().flat_map(work).collect();
        ops.push(write("z", "z"));
        let layer = scene.layer(&ops);
        commit_by(&scene, &layer, &Rules::default());
        assert!(before == contents(&ws, &paths), "{is_gone} {as_object}");
        drop(layer);
        // Nor by an accept of what is protected, where the names part.
        if !is_gone && scene.path("layers/run").exists() {
            accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
            assert!(before == contents(&ws, &paths), "{is_gone} {as_object}");
        }
        // What the index of overlay alone has of an object is left out, and nothing else waits for it.
        assert!(ws.join("z").exists() || (is_gone && !as_object), "{is_gone} {as_object}");
    }
}

/// One name of an object goes, another one comes, and nothing of the layer is at the place of the object.
#[test]
fn an_object_is_not_written_through_a_new_name_either() {
    let scene = scene();
    let ws = scene.ws();
    let is_object = |path: &String| path.starts_with(".git/objects/") && !path.contains("/info/");
    let paths: Vec<String> = targets(&ws).into_iter().filter(is_object).collect();
    let before = contents(&ws, &paths);
    let mut ops: Vec<Op> = Vec::new();
    for path in &paths {
        let (old, new) = (path.replace(".git/", "old/"), path.replace(".git/", "z/"));
        fs::create_dir_all(ws.join(&old).parent().unwrap()).unwrap();
        fs::hard_link(ws.join(path), ws.join(&old)).unwrap();
        let above: Vec<&str> = Path::new(&new).ancestors().skip(1).map(|above| above.to_str().unwrap()).collect();
        ops.extend(above.iter().rev().filter(|above| !above.is_empty()).map(|above| Op::Mkdir(b(above))));
        ops.extend([Op::Link(b(&old), b(&new)), Op::Remove(b(&old)), Op::Chmod(b(&new), 0o644)]);
        ops.push(write(&new, "of the run"));
    }
    copy_to_plain(&scene);
    let layer = scene.layer(&ops);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert!(before == contents(&ws, &paths), "{result:?}");
}

/// The twins: names of ordinary files, and objects that repositories of the workspace share, stay one file.
#[test]
fn ordinary_files_and_unchanged_objects_stay_one_file() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main", "a"]);
    fs::write(ws.join("a/f"), "1\n").unwrap();
    git(&ws.join("a"), &["add", "."]);
    git(&ws.join("a"), &["commit", "-q", "-m", "1"]);
    fs::create_dir(ws.join("tree")).unwrap();
    fs::write(ws.join("tree/one"), "1\n").unwrap();
    fs::hard_link(ws.join("tree/one"), ws.join("tree/two")).unwrap();
    copy_to_plain(&scene);
    let objects: Vec<PathBuf> = files_below(&ws.join("a/.git/objects"));
    // As `git clone --local` and `cp -al` do it.
    let mut ops: Vec<Op> = ["c.git", "c.git/objects", "copied"].map(|path| Op::Mkdir(b(path))).to_vec();
    for object in &objects {
        let below = object.strip_prefix(ws.join("a/.git")).unwrap();
        ops.push(Op::Mkdir(b(Path::new("c.git").join(below.parent().unwrap()).to_str().unwrap())));
        let (old, new) = (Path::new("a/.git").join(below), Path::new("c.git").join(below));
        ops.push(Op::Link(b(old.to_str().unwrap()), b(new.to_str().unwrap())));
    }
    ops.extend([Op::Link(b("tree/one"), b("copied/one")), Op::Append(b("tree/two"), "2\n".into())]);
    let layer = scene.layer(&ops);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    let of = |path: &Path| fs::metadata(ws.join(path)).unwrap().ino();
    for object in &objects {
        let below = object.strip_prefix(ws.join("a/.git")).unwrap();
        assert_eq!(of(object), of(&Path::new("c.git").join(below)), "{object:?}");
    }
    assert_eq!(of(Path::new("tree/one")), of(Path::new("copied/one")));
    assert_eq!(fs::read_to_string(ws.join("copied/one")).unwrap(), "1\n2\n");
}

fn files_below(objects: &Path) -> Vec<PathBuf> {
    let listed = Command::new("find").arg(objects).args(["-type", "f"]).output().unwrap();
    String::from_utf8_lossy(&listed.stdout).lines().map(PathBuf::from).collect()
}
