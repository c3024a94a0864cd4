//! Files that git takes for damaged without each other come together or not at all: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::{Committed, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_git, run_with};
use std::fs;

fn nothing() -> Rules {
    Rules { only: Some(vec![]), ..Rules::default() }
}

fn all() -> Rules {
    Rules { accept_protected: true, ..Rules::default() }
}

fn without(path: &str) -> Rules {
    Rules { except: vec![path.into()], ..all() }
}

fn why(result: &Committed, path: &str) -> String {
    let found = result.parked.iter().find(|one| one.path.0 == path.as_bytes());
    found.and_then(|one| one.protected.clone()).unwrap_or_default()
}

/// A run made the working tree `wt` in the workspace.
fn with_tree(has_directory: bool) -> Scene {
    let scene = cloned_scene();
    if has_directory {
        fs::create_dir(scene.ws().join("wt")).unwrap();
    }
    let layer = run_with(&scene, |upper| {
        git(upper, &["worktree", "add", "-q", "wt", "-b", "fix"]);
        // The run has it where the workspace is.
        for file in ["wt/.git", ".git/worktrees/wt/gitdir"] {
            let text = fs::read_to_string(upper.join(file)).unwrap();
            let text = text.replace(upper.to_str().unwrap(), scene.ws().to_str().unwrap());
            fs::write(upper.join(file), text).unwrap();
        }
    });
    commit_by(&scene, &layer, &nothing());
    scene
}

#[test]
fn a_working_tree_comes_with_its_git_directory() {
    for rules in [
        named(&["wt"]),
        without(".git/worktrees"),
        without(".git/worktrees/wt/HEAD"),
        without(".git/worktrees/wt/commondir"),
        without(".git/worktrees/wt/gitdir"),
    ] {
        let scene = with_tree(false);
        let left = accept(&scene, &rules);
        assert!(why(&left, "wt").contains("accept that directory first"), "{rules:?}: {left:?}");
        assert!(!scene.ws().join("wt").exists(), "{rules:?}");
        let left = accept(&scene, &all());
        assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{left:?}");
        assert_eq!(git(&scene.ws().join("wt"), &["status", "--short"]), "", "{rules:?}");
    }
    // The twins: both at once, or one after the other.
    let scene = with_tree(false);
    drop(accept(&scene, &named(&["wt", ".git/worktrees", ".git/refs"])));
    assert_eq!(git(&scene.ws().join("wt"), &["status", "--short"]), "");
    let scene = with_tree(false);
    drop(accept(&scene, &named(&[".git/worktrees", ".git/refs"])));
    drop(accept(&scene, &named(&["wt"])));
    assert_eq!(git(&scene.ws().join("wt"), &["status", "--short"]), "");
}

/// Nor does it come to a directory that the workspace has.
#[test]
fn a_working_tree_in_an_old_directory_comes_with_its_git_directory() {
    let scene = with_tree(true);
    let left = accept(&scene, &named(&["wt"]));
    assert_eq!(fs::read_dir(scene.ws().join("wt")).unwrap().count(), 0, "{left:?}");
    assert!(why(&left, "wt/.git").contains("accept that directory first"), "{left:?}");
    assert_eq!(parked(&accept(&scene, &all())), [""; 0]);
    assert_eq!(git(&scene.ws().join("wt"), &["status", "--short"]), "");
}

/// A repository without its whole history.
fn without_history() -> Scene {
    let scene = cloned_scene();
    let origin = format!("file://{}", scene.path("origin.git").display());
    let ws = scene.ws();
    git(&ws, &["commit", "-q", "--allow-empty", "-m", "2"]);
    git(&ws, &["push", "-q", "origin", "main"]);
    fs::remove_dir_all(ws.join(".git")).unwrap();
    git(scene.dir.path(), &["clone", "-q", "--depth", "1", "--branch", "main", &origin, "cut"]);
    fs::rename(scene.path("cut/.git"), ws.join(".git")).unwrap();
    assert!(ws.join(".git/shallow").exists());
    scene
}

/// A run that fetches the rest of the history.
fn with_fetch() -> Scene {
    let scene = without_history();
    let layer = run_git(&scene, &[&["fetch", "-q", "--unshallow", "origin"]]);
    commit_by(&scene, &layer, &nothing());
    scene
}

#[test]
fn a_longer_history_comes_with_its_objects() {
    const OBJECTS: &str = ".git/objects";
    for rules in
        [named(&[".git/shallow"]), without(OBJECTS), Rules { except: vec![OBJECTS.into()], ..Rules::default() }]
    {
        let scene = with_fetch();
        let left = accept(&scene, &rules);
        assert!(scene.ws().join(".git/shallow").exists(), "{rules:?}: {left:?}");
        assert!(!why(&left, ".git/shallow").is_empty(), "{rules:?}: {left:?}");
        let told = git(&scene.ws(), &["log", "--oneline"]) + &git(&scene.ws(), &["fsck"]);
        assert!(!told.contains("fatal") && !told.contains("missing"), "{rules:?}: {told}");
        // The twin.
        assert_eq!(parked(&accept(&scene, &all())), [""; 0], "{rules:?}");
        assert!(!scene.ws().join(".git/shallow").exists());
        let told = git(&scene.ws(), &["log", "--oneline"]) + &git(&scene.ws(), &["fsck"]);
        assert!(told.lines().count() >= 2 && !told.contains("fatal") && !told.contains("missing"), "{told}");
    }
    let scene = with_fetch();
    drop(accept(&scene, &named(&[OBJECTS])));
    drop(accept(&scene, &named(&[".git/shallow"])));
    assert!(!scene.ws().join(".git/shallow").exists());
    assert!(!git(&scene.ws(), &["fsck"]).contains("missing"));
}

/// `git gc` writes the file again, as it was.
#[test]
fn a_file_shallow_that_says_the_same_is_no_change() {
    let scene = without_history();
    let before = fs::read(scene.ws().join(".git/shallow")).unwrap();
    let layer = run_with(&scene, |upper| {
        git(upper, &["commit", "-q", "--allow-empty", "-m", "of the run"]);
        fs::remove_file(upper.join(".git/shallow")).unwrap();
        fs::write(upper.join(".git/shallow"), &before).unwrap();
    });
    let head = git(&layer.upper(), &["rev-parse", "HEAD"]);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    assert_eq!(git(&scene.ws(), &["rev-parse", "HEAD"]), head);
    assert_eq!(fs::read(scene.ws().join(".git/shallow")).unwrap(), before);
    assert!(!git(&scene.ws(), &["fsck"]).contains("missing"));
}
