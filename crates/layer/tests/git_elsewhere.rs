//! A repository whose objects lie in another repository of the same workspace, and of both a person accepts only one: with the real
//! git and a real overlay.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, dying};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::{Committed, Faults, Layer, LayerMode, Rules};
use repository::{accept, commit_by, git, named, parked};
use std::fs;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const WAITS: &str = "git objects of the run wait in another repository";

fn git_op(words: &str) -> Op {
    Op::Git(words.split(' ').map(str::to_owned).collect())
}

fn git_ops(work: &str) -> Vec<Op> {
    work.split(',').map(git_op).collect()
}

/// A workspace with the repository `A`, and outside of it the repository `lender`.
fn scene() -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    for place in [scene.ws().join("A"), scene.path("lender")] {
        fs::create_dir(&place).unwrap();
        git(&place, &["init", "-q", "-b", "main"]);
        fs::write(place.join("f"), "1").unwrap();
        git(&place, &["add", "."]);
        git(&place, &["commit", "-q", "-m", "1"]);
    }
    scene
}

fn clone(scene: &Scene, words: &[&str]) {
    let told = git(&scene.ws(), &[&["clone", "-q"], words].concat());
    assert!(!told.contains("fatal"), "{words:?}: {told}");
}

fn borrow(git_dir: &Path, line: &str) {
    fs::write(git_dir.join("objects/info/alternates"), format!("{line}\n")).unwrap();
}

/// The ways in which a repository of the host depends on objects of `A`, and its git directory.
const WAYS: &[(&str, &str)] = &[
    ("relative", "B/.git"),
    ("absolute", "B/.git"),
    ("reference", "B/.git"),
    ("chain", "B/.git"),
    ("bare", "B"),
    ("submodule", "S/.git/modules/B"),
    ("link", "B/.git"),
    ("link on the way", "B/.git"),
    ("quoted", "B/.git"),
    ("from outside", "B/.git"),
    ("by another name", "B/.git"),
    ("partial", "B/.git"),
];

/// Makes a repository that finds objects of `A` in this way.
fn depend(scene: &Scene, way: &str, git_dir: &str) {
    let ws = scene.ws();
    let at = ws.join(git_dir);
    match way {
        "bare" => clone(scene, &["--bare", "-s", "A", "B"]),
        "submodule" => {
            clone(scene, &["--no-local", "A", "S"]);
            fs::create_dir(ws.join("S/.git/modules")).unwrap();
            clone(scene, &["-s", "A", "m"]);
            fs::rename(ws.join("m/.git"), &at).unwrap();
            fs::remove_dir_all(ws.join("m")).unwrap();
        }
        "reference" => clone(scene, &["--reference", "A", "--no-local", scene.path("lender").to_str().unwrap(), "B"]),
        "partial" => {
            git(&ws.join("A"), &["config", "uploadpack.allowFilter", "true"]);
            let url = format!("file://{}", ws.join("A").display());
            clone(scene, &["--filter=blob:none", &url, "B"]);
            return;
        }
        "chain" => {
            clone(scene, &["-s", "A", "C"]);
            clone(scene, &["-s", "C", "B"]);
            borrow(&ws.join("C/.git"), "../../../A/.git/objects");
        }
        _ => clone(scene, &["-s", "A", "B"]),
    }
    let objects = ws.join("A/.git/objects");
    match way {
        "relative" => borrow(&at, "../../../A/.git/objects"),
        "chain" => borrow(&at, "../../../C/.git/objects"),
        "link" => {
            fs::remove_dir_all(at.join("objects")).unwrap();
            symlink("../../A/.git/objects", at.join("objects")).unwrap();
        }
        "link on the way" => {
            symlink("A", ws.join("to-A")).unwrap();
            borrow(&at, "../../../to-A/.git/objects");
        }
        "quoted" => borrow(&at, &format!("\"{}\"", objects.display())),
        "from outside" => {
            borrow(&scene.path("lender/.git"), objects.to_str().unwrap());
            borrow(&at, scene.path("lender/.git/objects").to_str().unwrap());
        }
        "by another name" => {
            symlink(&ws, scene.path("other-name")).unwrap();
            borrow(&at, scene.path("other-name/A/.git/objects").to_str().unwrap());
        }
        _ => borrow(&at, objects.to_str().unwrap()),
    }
}

/// Commits a file to `A`.
fn commit_new() -> Vec<Op> {
    git_ops("config -f A/new work.of new,-C A add new,-C A commit -q -m new")
}

/// A run commits to `A` and makes a branch of that commit in the other repository. The test writes the branch, since the overlay of
/// the run lies at another path than the workspace.
fn run_with_branch(scene: &Scene, git_dir: &str) -> Layer {
    let make = format!("--git-dir={git_dir} update-ref refs/heads/x HEAD");
    let layer = scene.layer(&[&git_ops("-C A checkout -q -b topic")[..], &commit_new(), &[git_op(&make)]].concat());
    let upper = layer.upper();
    let commit = fs::read_to_string(upper.join("A/.git/refs/heads/topic")).unwrap();
    fs::write(upper.join(git_dir).join("refs/heads/x"), commit).unwrap();
    layer
}

fn details(result: &Committed) -> String {
    format!("{:?}", result.conflicts)
}

fn assert_sound(git_dir: &Path, context: &str) {
    let output = git(git_dir, &["fsck", "--full"]);
    let is_sound = !["missing", "broken", "error", "fatal", "invalid"].iter().any(|word| output.contains(word));
    assert!(is_sound, "{context}: {output}");
}

fn reject(scene: &Scene) {
    Layer::open(&scene.path("layers"), "run").unwrap().discard().unwrap();
}

/// The commit and the file of the run are there.
fn assert_work(ws: &Path, git_dir: &str, of: &str, context: &str) {
    let shown = git(&ws.join(git_dir), &["show", of]);
    assert!(shown.starts_with("[work]\n\tof = new\n"), "{context}: {shown}");
}

/// Commits nothing, and then accepts what lies in the other repository.
fn accept_alone(scene: &Scene, layer: Layer, top: &str, further: &[&str]) -> Committed {
    commit_by(scene, &layer, &named(&["nothing"]));
    drop(layer);
    accept(scene, &named(&[&[top], further].concat()))
}

#[test]
fn a_branch_waits_for_the_objects_of_another_repository() {
    for (way, git_dir) in WAYS {
        let scene = scene();
        let ws = scene.ws();
        depend(&scene, way, git_dir);
        assert_sound(&ws.join(git_dir), way);
        let top = git_dir.split('/').next().unwrap();
        let layer = run_with_branch(&scene, git_dir);
        let result = accept_alone(&scene, layer, top, &[]);
        assert!(details(&result).contains(WAITS), "{way}: {result:?}");
        assert!(!ws.join(git_dir).join("refs/heads/x").exists(), "{way}");
        // The twin: with the objects it comes.
        let result = accept(&scene, &named(&[top, "A/.git/objects"]));
        assert!(result.conflicts.is_empty(), "{way}: {result:?}");
        reject(&scene);
        assert_work(&ws, git_dir, "x:new", way);
        assert_sound(&ws.join(git_dir), way);
    }
}

#[test]
fn a_reject_of_the_rest_leaves_a_borrower_whole() {
    for (way, git_dir) in WAYS {
        let scene = scene();
        depend(&scene, way, git_dir);
        let layer = run_with_branch(&scene, git_dir);
        accept_alone(&scene, layer, git_dir.split('/').next().unwrap(), &[]);
        reject(&scene);
        assert_sound(&scene.ws().join(git_dir), way);
    }
}

/// An accept of both repositories brings both, and one of a branch that needs no waiting object brings it.
#[test]
fn a_borrower_comes_where_nothing_that_it_needs_waits() {
    for (way, git_dir) in WAYS {
        let scene = scene();
        let ws = scene.ws();
        depend(&scene, way, git_dir);
        let result = commit_by(&scene, &run_with_branch(&scene, git_dir), &Rules::default());
        assert_eq!((parked(&result), details(&result)), (vec![], "[]".to_owned()), "{way}");
        assert_work(&ws, git_dir, "x:new", way);
        // Work of another run in the other repository waits, and this branch does not need it.
        let ops = "-C A commit -q --allow-empty -m later,".to_owned()
            + &format!("--git-dir={git_dir} update-ref refs/heads/y HEAD");
        let layer = scene.layer(&git_ops(&ops));
        let result = accept_alone(&scene, layer, git_dir.split('/').next().unwrap(), &[]);
        assert_eq!(details(&result), "[]", "{way}");
        assert!(ws.join(git_dir).join("refs/heads/y").exists(), "{way}");
    }
}

/// The lender is outside of the workspace, and has the commit already that also waits in the workspace.
#[test]
fn what_a_lender_outside_of_the_workspace_has_is_not_missed() {
    let scene = scene();
    let (ws, lender) = (scene.ws(), scene.path("lender"));
    clone(&scene, &["-s", lender.to_str().unwrap(), "B"]);
    git(&lender, &["config", "-f", "new", "work.of", "new"]);
    git(&lender, &["add", "."]);
    git(&lender, &["commit", "-q", "-m", "new"]);
    let from = lender.display().to_string();
    let ops = [format!("-C A fetch -q {from} main:other"), "-C B fetch -q".to_owned()];
    let layer = scene.layer(&ops.map(|words| git_op(&words)));
    assert!(layer.upper().join("A/.git/refs/heads/other").exists());
    let result = accept_alone(&scene, layer, "B", &[]);
    assert_eq!(details(&result), "[]");
    reject(&scene);
    assert_work(&ws, "B/.git", "origin/main:new", "lender");
}

/// Makes `B` in a run as a clone that borrows from `A`, which has a new commit. `first` is what the run does before.
fn run_with_clone(scene: &Scene, first: &[Op], way: &str) -> Layer {
    let url = format!("file://{}", scene.path("merged/A").display());
    let words = match way {
        "partial" => format!("clone -q -n --filter=blob:none {url} B"),
        _ => "clone -q -s A B".to_owned(),
    };
    let layer = scene.layer(&[first, &commit_new(), &[git_op(&words)]].concat());
    // A run has the workspace at its own path.
    let git_dir = layer.upper().join("B/.git");
    match way {
        "absolute" => borrow(&git_dir, scene.ws().join("A/.git/objects").to_str().unwrap()),
        "relative" => borrow(&git_dir, "../../../A/.git/objects"),
        _ => {
            let config = git_dir.join("config");
            let text = fs::read_to_string(&config).unwrap();
            let (from, to) = (scene.path("merged"), scene.ws());
            fs::write(&config, text.replace(from.to_str().unwrap(), to.to_str().unwrap())).unwrap();
        }
    }
    layer
}

const ALTERNATES: &str = "B/.git/objects/info/alternates";

#[test]
fn a_new_clone_waits_for_the_objects_that_it_borrows() {
    for way in ["absolute", "relative", "partial"] {
        for further in [&[][..], &[ALTERNATES]] {
            for is_new in [false, true] {
                let scene = scene();
                let ws = scene.ws();
                let context = format!("{way} {further:?} {is_new}");
                git(&ws.join("A"), &["config", "uploadpack.allowFilter", "true"]);
                let mut first = Vec::new();
                if is_new {
                    fs::remove_dir_all(ws.join("A")).unwrap();
                    first = git_ops("init -q -b main A,-C A config uploadpack.allowFilter true");
                }
                let layer = run_with_clone(&scene, &first, way);
                let result = accept_alone(&scene, layer, "B", further);
                assert!(details(&result).contains(WAITS), "{context}: {result:?}");
                assert!(!ws.join("B/.git/HEAD").exists(), "{context}");
                // The twin: with the objects it comes.
                let objects = if is_new { "A" } else { "A/.git/objects" };
                let result = accept(&scene, &named(&["B", objects, ALTERNATES, "B/.git/config"]));
                assert!(result.conflicts.is_empty(), "{context}: {result:?}");
                assert_work(&ws, "B/.git", "HEAD:new", &context);
                assert_sound(&ws.join("B/.git"), &context);
            }
        }
    }
}

/// All comes together, and what is borrowed from outside needs nothing of the run.
#[test]
fn a_new_clone_comes_where_nothing_that_it_needs_waits() {
    for way in ["absolute", "relative", "partial"] {
        for accepts in [&["A", "B", ALTERNATES][..], &["A", "B"]].into_iter().take(if way == "partial" { 2 } else { 1 })
        {
            let scene = scene();
            git(&scene.ws().join("A"), &["config", "uploadpack.allowFilter", "true"]);
            let layer = run_with_clone(&scene, &[], way);
            let result = commit_by(&scene, &layer, &named(accepts));
            assert_eq!(details(&result), "[]", "{way} {accepts:?}");
            assert!(scene.ws().join("B/.git/HEAD").exists(), "{way} {accepts:?}");
        }
    }
    let scene = scene();
    let from = scene.path("lender").display().to_string();
    let layer = scene.layer(&git_ops(&format!("clone -q -s {from} B,-C A commit -q --allow-empty -m later")));
    let result = accept_alone(&scene, layer, "B", &[ALTERNATES]);
    assert_eq!(details(&result), "[]");
    assert_eq!(git(&scene.ws().join("B"), &["log", "--format=%s"]), "1\n");
}

/// The file waits by its name, and without it the names of the repository lead to nothing.
#[test]
fn a_new_clone_does_not_come_without_the_file_by_which_it_borrows() {
    for way in ["absolute", "relative", "outside", "whole"] {
        let scene = scene();
        let layer = match way {
            "outside" => {
                let from = scene.path("lender").display().to_string();
                scene.layer(&git_ops(&format!("clone -q -s {from} B")))
            }
            "whole" => run_with_whole(&scene, "B"),
            _ => run_with_clone(&scene, &[], way),
        };
        let result = commit_by(&scene, &layer, &named(&["A", "B"]));
        assert!(details(&result).contains("objects/info/alternates"), "{way}: {result:?}");
        assert!(!scene.ws().join("B/.git/HEAD").exists(), "{way}");
        drop(layer);
        let result = accept(&scene, &named(&["B", ALTERNATES]));
        assert!(result.conflicts.is_empty(), "{way}: {result:?}");
        assert_sound(&scene.ws().join("B/.git"), way);
    }
    // One that borrows and has all that its names lead to comes, and works.
    let scene = scene();
    let layer = scene.layer(&git_ops("clone -q -s A B,-C B repack -q -a -d"));
    let result = commit_by(&scene, &layer, &named(&["A", "B"]));
    assert_eq!(details(&result), "[]");
    assert_sound(&scene.ws().join("B/.git"), "with its own objects");
}

/// Makes a repository in a run that borrows from `A`, which has a new commit, and that comes as one directory.
fn run_with_whole(scene: &Scene, name: &str) -> Layer {
    let layer = scene.layer(&[&commit_new()[..], &git_ops(&format!("init -q -b main --template= {name}"))].concat());
    let git_dir = layer.upper().join(name).join(".git");
    fs::create_dir_all(git_dir.join("objects/info")).unwrap();
    borrow(&git_dir, "../../../A/.git/objects");
    let commit = fs::read_to_string(layer.upper().join("A/.git/refs/heads/main")).unwrap();
    fs::write(git_dir.join("refs/heads/main"), commit).unwrap();
    layer
}

/// A directory may come before the objects of the other repository, or after them.
#[test]
fn a_whole_new_repository_waits_for_the_objects_that_it_borrows() {
    for name in ["0", "B"] {
        let scene = scene();
        let layer = run_with_whole(&scene, name);
        let alternates = format!("{name}/.git/objects/info/alternates");
        let result = accept_alone(&scene, layer, name, &[&alternates]);
        assert!(details(&result).contains(WAITS), "{name}: {result:?}");
        assert!(!scene.ws().join(name).exists(), "{name}");
        // The twin: with the objects it comes.
        let result = accept(&scene, &named(&[name, "A/.git/objects", &alternates]));
        assert!(result.conflicts.is_empty(), "{name}: {result:?}");
        assert_work(&scene.ws(), &format!("{name}/.git"), "HEAD:new", name);
    }
}

/// The commit is killed at each point, and the recovery takes the repository back as well.
#[test]
fn a_new_repository_waits_also_after_a_kill() {
    let mut nth = 1;
    loop {
        let scene = scene();
        let mut layer = run_with_whole(&scene, "B");
        commit_by(&scene, &layer, &named(&["nothing"]));
        layer = {
            drop(layer);
            Layer::open(&scene.path("layers"), "run").unwrap()
        };
        layer.set_faults(dying(&scene, nth));
        let workspace = scene.workspace();
        let rules = named(&["B", ALTERNATES]);
        let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &rules)))).is_ok();
        drop(layer);
        recover_with(&scene.path("layers"), "run", &scene.workspace(), &Faults::default()).unwrap();
        assert!(!scene.ws().join("B/.git/HEAD").exists(), "{nth}");
        let result = accept(&scene, &named(&["B", "A/.git/objects", ALTERNATES]));
        assert!(result.conflicts.is_empty(), "{nth}: {result:?}");
        assert_work(&scene.ws(), "B/.git", "HEAD:new", &nth.to_string());
        if done {
            break;
        }
        nth += 2;
    }
    assert!(nth > 5, "{nth}");
}

/// A user rejected the objects of the lender: the branch that leads to them does not come.
#[test]
fn a_branch_does_not_come_after_a_reject_of_the_objects_that_it_borrows() {
    let scene = scene();
    depend(&scene, "relative", "B/.git");
    let layer = run_with_branch(&scene, "B/.git");
    for objects in fs::read_dir(layer.upper().join("A/.git/objects")).unwrap() {
        fs::remove_dir_all(objects.unwrap().path()).unwrap();
    }
    let result = commit_by(&scene, &layer, &named(&["B"]));
    assert!(parked(&result).contains(&"B/.git/refs/heads/x".to_owned()), "{result:?}");
    assert!(format!("{:?}", result.parked).contains("neither here nor in the run"), "{result:?}");
    assert_sound(&scene.ws().join("B/.git"), "after it");
}
