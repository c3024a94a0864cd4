//! A person accepts a part of what a run did in a repository and rejects the rest: with the real git and a real overlay.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, write};
use nexus_layer::{Committed, Layer, LayerMode};
use repository::{accept, commit_by, git, named, parked};
use std::fs;
use std::path::Path;

fn git_ops(work: &str) -> Vec<Op> {
    work.split(',').map(|words| Op::Git(words.split(' ').map(str::to_owned).collect())).collect()
}

/// A repository with two commits, of which it keeps no logs. `mine` is a file that is not in git.
fn scene() -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main"]);
    git(&ws, &["config", "core.logAllRefUpdates", "false"]);
    for text in ["1", "2"] {
        fs::write(ws.join("f"), text).unwrap();
        git(&ws, &["add", "."]);
        git(&ws, &["commit", "-q", "-m", text]);
    }
    fs::write(ws.join("mine"), "mine").unwrap();
    scene
}

fn assert_sound(ws: &Path, context: &str) {
    let output = git(ws, &["fsck", "--full"]);
    let is_sound = !["missing", "broken", "error", "fatal", "invalid"].iter().any(|word| output.contains(word));
    assert!(is_sound, "{context}: {output}");
}

/// Commits nothing of the work of a run, and then accepts those paths alone that begin like this.
fn accept_alone(scene: &Scene, ops: &[Op], prefixes: &[&str]) -> (Vec<String>, Committed) {
    let layer = scene.layer(ops);
    let first = commit_by(scene, &layer, &named(&["nothing"]));
    drop(layer);
    let all: Vec<String> =
        parked(&first).into_iter().filter(|path| prefixes.iter().any(|one| path.starts_with(one))).collect();
    assert!(!all.is_empty(), "{first:?}");
    let result = accept_all(scene, &all, &[]);
    (all, result)
}

fn accept_all(scene: &Scene, paths: &[String], further: &[&str]) -> Committed {
    let paths: Vec<&str> = paths.iter().map(String::as_str).chain(further.iter().copied()).collect();
    accept(scene, &named(&paths))
}

/// Works that bring a directory whose files lead to objects of the run, and the beginning of their paths.
const WORKS: &[(&str, &str)] = &[
    ("checkout -q -b feature/x,commit -q --allow-empty -m new,checkout -q main", ".git/refs/heads/feature/x"),
    ("checkout -q -b a/b/c,commit -q --allow-empty -m new,checkout -q main", ".git/refs/heads/a/b/c"),
    (
        "checkout -q --detach,commit -q --allow-empty -m new,update-ref refs/remotes/origin/x HEAD,checkout -q main",
        ".git/refs/remotes/origin/x",
    ),
    (
        "checkout -q --detach,commit -q --allow-empty -m new,update-ref refs/bisect/bad HEAD,checkout -q main",
        ".git/refs/bisect/bad",
    ),
];

/// The branch is a step of its own, since its directory is there.
const BRANCH: (&str, &str) = ("checkout -q -b x,commit -q --allow-empty -m new,checkout -q main", ".git/refs/heads/x");

/// Lets the repository find objects elsewhere, so that one that is not found need not be missing.
fn open_elsewhere(scene: &Scene, way: &str) {
    let objects = scene.ws().join(".git/objects");
    match way {
        "alternates" => {
            let lender = scene.path("lender");
            fs::create_dir(&lender).unwrap();
            fs::write(objects.join("info/alternates"), format!("{}\n", lender.display())).unwrap();
        }
        "promisor" => fs::write(objects.join("pack/pack-of-a-promise.promisor"), "").unwrap(),
        _ => {}
    }
}

/// A ref that a person accepts without its objects would lead to nothing once the rest is rejected.
#[test]
fn a_name_alone_does_not_come_without_the_objects_of_the_run() {
    for way in ["whole", "alternates", "promisor"] {
        for (work, path) in WORKS.iter().chain([&BRANCH]) {
            let scene = scene();
            let ws = scene.ws();
            open_elsewhere(&scene, way);
            let context = format!("{way} {path}");
            let (paths, result) = accept_alone(&scene, &git_ops(work), &[path]);
            let why = format!("{:?}", result.conflicts);
            assert!(why.contains("git objects of the run wait"), "{context}: {result:?}");
            assert!(!ws.join(path).exists(), "{context}");
            assert_sound(&ws, &context);
            // The twin: with its objects it comes.
            let result = accept_all(&scene, &paths, &[".git/objects"]);
            assert!(result.conflicts.is_empty() && ws.join(path).exists(), "{context}: {result:?}");
            Layer::open(&scene.path("layers"), "run").unwrap().discard().unwrap();
            assert_sound(&ws, &context);
            assert!(git(&ws, &["log", "--all", "--format=%s"]).contains("new"), "{context}");
        }
    }
}

/// The object of a commit that came alone does not bring the branch: its tree waits.
#[test]
fn a_branch_waits_for_all_objects_that_its_commit_needs() {
    for way in ["whole", "alternates"] {
        let scene = scene();
        let ws = scene.ws();
        open_elsewhere(&scene, way);
        let ops = [write("g", "new"), Op::Git(vec!["add".to_owned(), "g".to_owned()])];
        let ops = [&ops[..], &git_ops("checkout -q -b x,commit -q -m new,checkout -q main")].concat();
        let layer = scene.layer(&ops);
        let commit = fs::read_to_string(layer.upper().join(".git/refs/heads/x")).unwrap();
        commit_by(&scene, &layer, &named(&["nothing"]));
        drop(layer);
        let object = format!(".git/objects/{}/{}", &commit[..2], commit[2..].trim());
        accept(&scene, &named(&[&object]));
        assert!(ws.join(&object).exists());
        let result = accept(&scene, &named(&[".git/refs/heads/x"]));
        assert!(format!("{:?}", result.conflicts).contains("git objects of the run wait"), "{way}: {result:?}");
        let result = accept(&scene, &named(&[".git/refs/heads/x", ".git/objects"]));
        assert!(result.conflicts.is_empty(), "{way}: {result:?}");
        assert_eq!(git(&ws, &["show", "x:g"]), "new", "{way}");
    }
}

/// Tables of refs are not read: they wait as long as objects wait.
#[test]
fn tables_of_refs_wait_for_the_objects_of_the_run() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    let made = git(&ws, &["init", "-q", "-b", "main", "--ref-format=reftable"]);
    if made.contains("unknown option") {
        return;
    }
    fs::write(ws.join("f"), "1").unwrap();
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "1"]);
    let ops = git_ops("commit -q --allow-empty -m new");
    let (tables, result) = accept_alone(&scene, &ops, &[".git/reftable/"]);
    assert!(format!("{:?}", result.conflicts).contains("git objects of the run wait"), "{result:?}");
    assert_eq!(git(&ws, &["log", "--format=%s"]), "1\n");
    let result = accept_all(&scene, &tables, &[".git/objects"]);
    assert!(result.conflicts.is_empty(), "{result:?}");
    assert_eq!(git(&ws, &["log", "--format=%s"]), "new\n1\n");
}

/// A clone of `lender` that has no object of its own yet.
fn borrower() -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let lender = scene.path("lender");
    fs::create_dir(&lender).unwrap();
    git(&lender, &["init", "-q", "-b", "main"]);
    fs::write(lender.join("f"), "1").unwrap();
    git(&lender, &["add", "."]);
    git(&lender, &["commit", "-q", "-m", "1"]);
    let told = git(scene.dir.path(), &["clone", "-q", "-s", lender.to_str().unwrap(), scene.ws().to_str().unwrap()]);
    assert!(!told.contains("fatal"), "{told}");
    assert!(scene.ws().join(".git/objects/info/alternates").exists());
    scene
}

#[test]
fn a_fresh_clone_that_borrows_all_objects_is_a_repository() {
    for (work, path) in WORKS.iter().chain([&BRANCH]) {
        let scene = borrower();
        let ws = scene.ws();
        let (paths, result) = accept_alone(&scene, &git_ops(work), &[path]);
        let why = format!("{:?}", result.conflicts);
        assert!(why.contains("git objects of the run wait"), "{path}: {result:?}");
        assert!(!ws.join(path).exists(), "{path}");
        assert_sound(&ws, path);
        // The twin: with its objects it comes.
        let result = accept_all(&scene, &paths, &[".git/objects"]);
        assert!(result.conflicts.is_empty() && ws.join(path).exists(), "{path}: {result:?}");
        assert_sound(&ws, path);
    }
}

/// No object is there yet, and what is staged needs those of the run.
#[test]
fn a_repository_without_objects_gets_no_index_alone() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main"]);
    let ops = [&[write("new", "new")][..], &git_ops("add new")].concat();
    let (paths, result) = accept_alone(&scene, &ops, &[".git/index"]);
    assert!(format!("{:?}", result.conflicts).contains("git objects of the run wait"), "{result:?}");
    assert!(!ws.join(".git/index").exists());
    // The twin: with its objects it comes, and so does a first commit.
    let result = accept_all(&scene, &paths, &[".git/objects"]);
    assert!(result.conflicts.is_empty() && ws.join(".git/index").exists(), "{result:?}");
    assert_sound(&ws, "with its objects");
    let scene = Scene::new(LayerMode::Root, &[]);
    git(&scene.ws(), &["init", "-q", "-b", "main"]);
    let layer = scene.layer(&[&ops[..], &git_ops("commit -q -m new")].concat());
    let result = commit_by(&scene, &layer, &nexus_layer::Rules::default());
    assert!(result.conflicts.is_empty() && result.parked.is_empty(), "{result:?}");
    assert_eq!(git(&scene.ws(), &["log", "--format=%s"]), "new\n");
}
