//! Refs wait where commits that they lead to need objects which are not there, in the run or after a kill: with the real git.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Scene, dying};
use nexus_facility::commit::recover::recover_with;
use nexus_facility::{Faults, Layer, Rules};
use repository::{accept, cloned_scene, commit_by, git, parked, run_with};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;

fn id(dir: &Path, what: &str) -> String {
    git(dir, &["rev-parse", what]).trim().to_owned()
}

/// Removes the loose object that a name leads to.
fn remove_object(dir: &Path, what: &str) {
    let id = id(dir, what);
    fs::remove_file(dir.join(".git/objects").join(&id[..2]).join(&id[2..])).unwrap();
}

fn assert_sound(scene: &Scene, context: &str) {
    let told = git(&scene.ws(), &["fsck", "--full"]);
    assert!(!["missing", "broken", "error", "fatal"].iter().any(|word| told.contains(word)), "{context}: {told}");
}

/// Two commits of a run in a clone, with a directory.
fn two_commits(upper: &Path) {
    for text in ["second", "third"] {
        fs::create_dir_all(upper.join("of/run")).unwrap();
        fs::write(upper.join("of/run/file"), text).unwrap();
        git(upper, &["add", "."]);
        git(upper, &["commit", "-q", "-m", text]);
    }
}

type Naming = (&'static str, fn(&Path));

#[test]
fn a_commit_without_all_that_it_needs_waits() {
    let ways: [Naming; 4] = [
        ("as the branch", |_| {}),
        ("packed refs", |upper| drop(git(upper, &["pack-refs", "--all"]))),
        ("another branch", |upper| {
            git(upper, &["branch", "new"]);
            git(upper, &["reset", "-q", "--hard", "HEAD~2"]);
        }),
        ("a tag", |upper| {
            git(upper, &["tag", "-a", "-m", "new", "new"]);
            git(upper, &["reset", "-q", "--hard", "HEAD~2"]);
        }),
    ];
    for missing in ["", "HEAD^{tree}", "HEAD:of", "HEAD:of/run/file", "HEAD~1", "HEAD~1^{tree}", "HEAD~1:of/run/file"] {
        for (way, then) in ways {
            let scene = cloned_scene();
            let old = id(&scene.ws(), "main");
            let layer = run_with(&scene, |upper| {
                two_commits(upper);
                let gone = if missing.is_empty() { None } else { Some(id(upper, missing)) };
                then(upper);
                if let Some(gone) = gone {
                    remove_object(upper, &gone);
                }
            });
            let result = commit_by(&scene, &layer, &Rules::default());
            let waits = parked(&result).iter().any(|path| path.starts_with(".git/refs/") || path == ".git/packed-refs");
            assert_eq!(waits, !missing.is_empty(), "{missing} {way}: {result:?}");
            assert_sound(&scene, &format!("{missing} {way}"));
            if waits {
                assert_eq!(id(&scene.ws(), "main"), old, "{missing} {way}");
            }
        }
    }
}

#[test]
fn a_branch_that_names_no_commit_waits() {
    for (what, waits) in [("main^{tree}", true), ("main:f", true), ("main", false)] {
        let scene = cloned_scene();
        let layer = run_with(&scene, |upper| {
            let id = id(upper, what);
            fs::write(upper.join(".git/refs/heads/new"), format!("{id}\n")).unwrap();
            git(upper, &["tag", "of-a-tree", "main^{tree}"]);
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!(parked(&result).iter().any(|path| path == ".git/refs/heads/new"), waits, "{what}: {result:?}");
        assert_eq!(scene.ws().join(".git/refs/tags/of-a-tree").exists(), !waits, "{what}");
    }
}

/// Ordinary work of git comes: nothing that it needs is missing.
#[test]
fn ordinary_work_needs_nothing_that_is_missing() {
    let works: [&[&[&str]]; 7] = [
        // git has no object for the tree without entries.
        &[&["rm", "-q", "-r", "."], &["commit", "-q", "-m", "nothing"]],
        &[&["commit", "-q", "--allow-empty", "-m", "empty"]],
        &[&["commit", "-q", "--allow-empty", "-m", "empty"], &["gc", "-q"]],
        &[&["commit", "-q", "--amend", "-m", "amended"], &["reflog", "expire", "--expire=now", "--all"], &["gc", "-q"]],
        &[&["tag", "-a", "-m", "t", "t", "old"], &["branch", "-D", "old"]],
        &[&["rm", "-q", "-r", "src"], &["commit", "-q", "-m", "less"], &["repack", "-q", "-a", "-d"]],
        &[&["commit", "-q", "--allow-empty", "-m", "x"], &["branch", "y"], &["pack-refs", "--all"]],
    ];
    for work in works {
        let scene = cloned_scene();
        let layer = repository::run_git(&scene, work);
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{work:?}");
        assert_sound(&scene, &format!("{work:?}"));
    }
}

/// A workspace that has what the run commits, since long ago, and that no ref leads to.
fn with_unreachable(packed: bool) -> (Scene, Layer) {
    let scene = cloned_scene();
    let ws = scene.ws();
    fs::create_dir(ws.join("u")).unwrap();
    fs::write(ws.join("u/u"), "unreachable").unwrap();
    git(&ws, &["add", "u"]);
    git(&ws, &["commit", "-q", "-m", "u"]);
    if packed {
        git(&ws, &["repack", "-q", "-a", "-d"]);
    }
    git(&ws, &["reset", "-q", "--soft", "HEAD~1"]);
    git(&ws, &["reset", "-q"]);
    git(&ws, &["reflog", "expire", "--expire=now", "--all"]);
    let age = ["-type", "f", "-exec", "touch", "-d", "2020-01-01", "{}", "+"];
    let aged = Command::new("find").arg(ws.join(".git/objects")).args(age).status();
    assert!(aged.unwrap().success());
    let layer = run_with(&scene, |upper| {
        git(upper, &["add", "u"]);
        git(upper, &["commit", "-q", "-m", "of the run"]);
    });
    (scene, layer)
}

/// The host removes objects between a kill of the commit and its recovery. What the commit brought already may be among them.
fn host_prunes(packed: bool, work: &[&str], takes_new: bool) {
    let (mut kills, mut kept, mut nth) = (0, 0, 1);
    loop {
        let (scene, mut layer) = with_unreachable(packed);
        let context = format!("{work:?} {nth}");
        layer.set_faults(dying(&scene, nth));
        let workspace = scene.workspace();
        let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default()))));
        drop(layer);
        git(&scene.ws(), work);
        recover_with(&scene.path("layers"), "run", &scene.workspace(), &Faults::default()).unwrap();
        assert_sound(&scene, &context);
        let is_there = || git(&scene.ws(), &["log", "--format=%s", "main"]).contains("of the run");
        if !is_there() {
            kept += 1;
            let result = accept(&scene, &Rules::default());
            assert_sound(&scene, &context);
            if is_there() {
                assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{context}");
                assert_eq!(git(&scene.ws(), &["status", "--porcelain"]), "", "{context}");
            } else {
                let reasons = format!("{:?}", result.parked);
                assert!(takes_new && reasons.contains("neither here nor in the run"), "{context}: {result:?}");
            }
        }
        if done.is_ok() {
            break;
        }
        (kills, nth) = (kills + 1, nth + 3);
    }
    assert!(kills > 5 && kept > 1, "{work:?}: {kills} {kept}");
}

#[test]
fn refs_whose_objects_went_after_a_kill_wait_with_the_objects_of_the_run() {
    host_prunes(false, &["prune", "--expire=1.hour.ago"], false);
    host_prunes(true, &["repack", "-q", "-a", "-d"], false);
    host_prunes(false, &["prune", "--expire=now"], true);
}
