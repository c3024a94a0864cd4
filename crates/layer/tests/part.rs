//! From a part of a layer, whose rest could not be saved, nothing comes that takes something away.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, b, rename, write};
use nexus_layer::{LayerMode, Rules};
use repository::{cloned_scene, git, named, parked, run_git, run_with};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Files that a run moves away before it writes something else at their places.
fn base() -> Vec<Op> {
    let mut all = vec![Op::Mkdir(b("d")), Op::Mkdir(b("opaque")), Op::Mkdir(b("renamed"))];
    let files = ["k", "l", "m", "gone", "edited", "other", "d/x", "d/y", "opaque/x", "renamed/x"];
    all.extend(files.map(|path| write(path, path)));
    all.push(Op::Symlink(b("target"), b("link")));
    all
}

fn run() -> Vec<Op> {
    vec![
        rename("k", "kk"),
        Op::Mkdir(b("k")),
        write("k/n", "new"),
        rename("l", "ll"),
        write("l", "new"),
        rename("m", "mm"),
        rename("other", "m"),
        rename("link", "link2"),
        Op::Symlink(b("new"), b("link")),
        rename("d/x", "d/xx"),
        Op::Symlink(b("new"), b("d/x")),
        Op::Remove(b("gone")),
        Op::Remove(b("d/y")),
        Op::RemoveTree(b("opaque")),
        Op::Mkdir(b("opaque")),
        write("opaque/n", "new"),
        rename("renamed", "moved"),
        Op::Append(b("edited"), "more".into()),
        write("new", "new"),
    ]
}

/// The names that the contents of the workspace get in the run, and that are missing.
const MISSING: [&str; 5] = ["kk", "ll", "mm", "link2", "d/xx"];

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn nothing_of_a_part_takes_a_file_away_by_its_name() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for all in [false, true] {
            let scene = Scene::new(mode, &base());
            let mut layer = scene.layer(&run());
            for name in MISSING {
                fs::remove_file(layer.upper().join(name)).unwrap();
            }
            layer.set_partial();
            let seen = layer.changes(&scene.workspace(), &Rules::default()).unwrap().changes;
            let held: Vec<_> =
                seen.iter().filter(|change| change.protected.is_some()).map(|one| one.path.0.clone()).collect();
            let list = ["d/x", "edited", "k", "l", "link", "m"];
            let list = list.into_iter().filter(|path| mode == LayerMode::User || *path != "edited");
            assert_eq!(held, list.map(b).collect::<Vec<_>>(), "{mode:?}: {seen:?}");
            let kind = seen.iter().find(|change| change.path.0 == b("k")).and_then(|one| one.protected.clone());
            assert!(kind.is_some_and(|why| why.contains("may be nowhere else")), "{mode:?}: {seen:?}");
            let names = ["k", "k/n", "l", "m", "link", "d", "gone", "opaque", "renamed", "moved", "edited", "new"];
            let rules = if all { Rules { accept_protected: true, ..Rules::default() } } else { named(&names) };
            let done = layer.commit(&scene.workspace(), &rules).unwrap();
            assert!(done.conflicts.is_empty(), "{mode:?}: {done:?}");
            let ws = scene.ws();
            for path in ["k", "l", "m", "gone", "other", "d/x", "d/y", "opaque/x", "renamed/x"] {
                assert_eq!(text(&ws.join(path)), path, "{mode:?} {path}: {done:?}");
            }
            assert_eq!(fs::read_link(ws.join("link")).unwrap(), Path::new("target"), "{mode:?}");
            let edited = if mode == LayerMode::Root { "editedmore" } else { "edited" };
            let came = [("edited", edited), ("new", "new"), ("opaque/n", "new")];
            for (path, wanted) in came {
                assert_eq!(text(&ws.join(path)), wanted, "{mode:?} {path}: {done:?}");
            }
            if mode == LayerMode::User {
                assert!(layer.upper().join("edited").is_file());
            }
        }
    }
}

/// The deletion of a log is not read from a part, and an edit of one may be missing.
#[test]
fn no_database_of_a_part_comes_beside_a_log() {
    for (end, in_workspace) in [("-wal", true), ("-journal", true), ("-wal", false), ("-journal", false)] {
        for all in [false, true] {
            let log = format!("d/s.db{end}");
            let mut base = vec![Op::Mkdir(b("d")), write("d/s.db", "old"), write("d/t.db", "old")];
            let mut run = vec![Op::Append(b("d/s.db"), "more".into()), Op::Append(b("d/t.db"), "more".into())];
            if in_workspace {
                base.push(write(&log, "old"));
                run.push(Op::Remove(b(&log)));
            } else {
                run.push(write(&log, "new"));
            }
            // Its database is not among what was saved.
            run.push(write("d/x-wal", "new"));
            let scene = Scene::new(LayerMode::Root, &base);
            let mut layer = scene.layer(&run);
            layer.set_partial();
            let names = ["d/s.db", log.as_str(), "d/t.db", "d/x-wal"];
            let rules = if all { Rules { accept_protected: true, ..Rules::default() } } else { named(&names) };
            let done = layer.commit(&scene.workspace(), &rules).unwrap();
            assert!(done.conflicts.is_empty(), "{log}: {done:?}");
            let ws = scene.ws();
            let now = names.map(|name| text(&ws.join(name)));
            let log_now = if in_workspace { "old" } else { "" };
            assert_eq!(now, ["old", log_now, "oldmore", ""], "{log} {in_workspace}: {done:?}");
            let waits = if in_workspace { vec!["d/s.db", "d/x-wal"] } else { vec!["d/s.db", &log, "d/x-wal"] };
            assert_eq!(parked(&done), waits, "{log}");
            // No accept of both helps.
            let is_of_part = |why: &String| why.contains("only a part");
            assert!(done.parked.iter().all(|one| one.protected.as_ref().is_some_and(is_of_part)), "{log}: {done:?}");
        }
    }
}

/// A copy was killed after its deletions, in a directory that is new without its mark.
#[test]
fn no_mark_of_a_deletion_comes_with_a_new_directory() {
    let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), write("d/x", "x"), write("d/y", "y")]);
    let mut layer = scene.layer(&[rename("d", "e"), Op::Remove(b("e/x")), write("e/n", "new")]);
    layer.set_partial();
    let done = layer.commit(&scene.workspace(), &named(&["e", "d"])).unwrap();
    assert!(done.conflicts.is_empty(), "{done:?}");
    let names = |path: &str| {
        let mut all: Vec<_> =
            fs::read_dir(scene.ws().join(path)).unwrap().map(|one| one.unwrap().file_name()).collect();
        all.sort();
        all
    };
    assert_eq!((names("e"), names("d")), (vec!["n".into()], vec!["x".into(), "y".into()]));
}

#[test]
fn only_objects_come_of_a_git_directory_of_a_part() {
    for bare in [false, true] {
        let scene = cloned_scene();
        let from = scene.path("origin.git");
        let clone = ["clone", "-q", "--bare", from.to_str().unwrap(), "b.git"];
        git(&scene.ws(), &clone);
        let (repository, git_dir) = if bare { ("b.git", "b.git") } else { (".", ".git") };
        let old = git(&scene.ws().join(repository), &["rev-parse", "--all", "HEAD"]);
        let mut layer = run_with(&scene, |upper| {
            fs::write(upper.join("f"), "of the run").unwrap();
            git(upper, &["commit", "-q", "-a", "-m", "of the run"]);
            if bare {
                git(upper, &["push", "-q", "b.git", "main", "main:refs/heads/objects/ab"]);
            }
            git(upper, &["branch", "new"]);
        });
        let lost = git(&layer.upper(), &["rev-parse", "HEAD:f"]);
        let loose = |objects: &str| format!("{git_dir}/objects/{}/{}", &objects[..2], objects[2..].trim());
        let missing = layer.upper().join(loose(&lost));
        let commit = git(&layer.upper(), &["rev-parse", "HEAD"]);
        fs::remove_file(&missing).unwrap();
        layer.set_partial();
        let done = layer.commit(&scene.workspace(), &named(&[git_dir])).unwrap();
        let waits = parked(&done);
        let head = if bare { "b.git/refs/heads/main" } else { ".git/refs/heads/main" };
        assert!(waits.iter().any(|path| path == head), "{waits:?}");
        let ws = scene.ws();
        assert_eq!(git(&ws.join(repository), &["rev-parse", "--all", "HEAD"]), old, "{waits:?}");
        assert!(ws.join(loose(&commit)).exists(), "{:?}", done.changes);
        let told = git(&ws.join(repository), &["log", "--all", "--stat"]);
        assert!(!told.contains("error:") && !told.contains("fatal:"), "{told}");
        let came = done.changes.changes.iter().map(|change| change.path.as_path().display().to_string());
        for path in came {
            assert!(path.starts_with(&format!("{git_dir}/objects")), "{path}");
        }
    }
}

/// The copy may have ended before it set the mode.
#[test]
fn no_mode_of_a_directory_comes_of_a_part() {
    let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), write("d/x", "x")]);
    let mut layer = scene.layer(&[Op::Chmod(b("d"), 0o700), write("d/n", "new")]);
    layer.set_partial();
    let done = layer.commit(&scene.workspace(), &named(&["d"])).unwrap();
    let mode = fs::metadata(scene.ws().join("d")).unwrap().permissions().mode();
    assert_eq!((mode & 0o777, text(&scene.ws().join("d/n"))), (0o755, "new".to_owned()), "{done:?}");
}

#[test]
fn no_name_of_a_commit_comes_of_a_new_repository_of_a_part() {
    for (work, git_dir) in [(&["init", "-q", "sub"][..], "sub/.git"), (&["clone", "-q", "--bare", ".", "srv"], "srv")] {
        let scene = cloned_scene();
        let mut layer = run_with(&scene, |upper| drop(git(upper, work)));
        assert!(layer.upper().join(git_dir).join("HEAD").exists());
        layer.set_partial();
        for rules in [named(&["sub", "srv"]), Rules { accept_protected: true, ..Rules::default() }] {
            let done = layer.commit(&scene.workspace(), &rules).unwrap();
            assert!(!scene.ws().join(git_dir).join("HEAD").exists(), "{git_dir}: {done:?}");
        }
    }
}

#[test]
fn a_pack_of_a_part_comes_only_with_its_index() {
    for missing in [None, Some("idx"), Some("pack"), Some("promisor")] {
        let scene = cloned_scene();
        let mut layer = run_git(&scene, &[&["commit", "-q", "--allow-empty", "-m", "new"], &["repack", "-q", "-a"]]);
        let packs = layer.upper().join(".git/objects/pack");
        for entry in fs::read_dir(&packs).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().and_then(|one| one.to_str()) == missing && missing.is_some() {
                fs::remove_file(path).unwrap();
            }
        }
        if missing == Some("promisor") {
            // Objects of it may be elsewhere by intention.
            let pack = fs::read_dir(&packs).unwrap().next().unwrap().unwrap().path();
            fs::write(pack.with_extension("promisor"), "").unwrap();
        }
        layer.set_partial();
        layer.commit(&scene.workspace(), &named(&[".git"])).unwrap();
        let is_pack = |name: &std::ffi::OsStr| !name.to_string_lossy().ends_with(".promisor");
        let came = fs::read_dir(scene.ws().join(".git/objects/pack"));
        let came = came.map_or(0, |all| all.filter(|one| is_pack(&one.as_ref().unwrap().file_name())).count());
        assert_eq!(came, if missing.is_none() { 2 } else { 0 }, "{missing:?}");
    }
}
