//! A ref that stays in a layer and names what git took out of the working tree: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::{Faults, Holds, Layer, LayerMode, Leftover, Recovered, Rules, recover};
use repository::{accept, commit_by, git, named, parked, run_with, scene_with_work};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// A clone with an edit that is not committed.
fn edited_scene() -> Scene {
    let scene = scene_with_work();
    let ws = scene.ws();
    fs::write(ws.join("work"), "base\nan edit of the user\n").unwrap();
    scene
}

fn with_tables() -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main", "--ref-format=reftable"]);
    fs::write(ws.join("work"), "base\n").unwrap();
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "work"]);
    fs::write(ws.join("work"), "base\nan edit of the user\n").unwrap();
    scene
}

const STASH: &[&[&str]] = &[&["stash"]];
const BRANCH: &[&[&str]] =
    &[&["checkout", "-q", "-b", "aside"], &["commit", "-qam", "wip"], &["checkout", "-q", "main"]];

/// Ends the history at the present commit, so that each new ref waits.
fn end_history(upper: &Path) {
    fs::write(upper.join(".git/shallow"), git(upper, &["rev-parse", "HEAD"])).unwrap();
}

/// Runs git in a layer, commits what comes, and rejects the rest.
fn rejected(scene: &Scene, work: impl FnOnce(&Path)) -> (Vec<Holds>, Option<Leftover>) {
    let layer = run_with(scene, work);
    let result = commit_by(scene, &layer, &Rules::default());
    assert!(result.conflicts.is_empty(), "{result:?}");
    let told = result.stashes.into_iter().map(|one| one.holds).collect();
    (told, layer.discard().unwrap())
}

fn each(upper: &Path, work: &[&[&str]]) {
    for arguments in work {
        git(upper, arguments);
    }
}

/// Reports that a commit which the workspace has holds the edit.
fn has_edit(scene: &Scene, commit: &str) -> bool {
    git(&scene.ws(), &["show", &format!("{commit}:work")]).contains("an edit of the user")
}

#[test]
fn edits_behind_a_ref_that_waits_stay_reachable() {
    for work in [STASH, BRANCH] {
        let scene = edited_scene();
        let (told, left) = rejected(&scene, |upper| {
            end_history(upper);
            each(upper, work);
        });
        assert_eq!(fs::read_to_string(scene.ws().join("work")).unwrap(), "base\n", "{work:?}");
        let commit = match &told[..] {
            [Holds::Stash(commit)] if work == STASH => commit,
            [Holds::Commit(commit)] if work == BRANCH => commit,
            other => panic!("{work:?}: {other:?}"),
        };
        assert!(has_edit(&scene, commit), "{work:?}");
        let left = left.expect("the layer has the only name of the commit");
        let said = left.to_string();
        let advice = if work == STASH { "git stash apply" } else { "git restore --source" };
        // The layer has copies of the objects, for the day when the host has none any more.
        assert!(said.contains(commit) && said.contains(advice) && said.contains("ALTERNATE"), "{said}");
        let file = if work == STASH { "upper/.git/refs/stash" } else { "upper/.git/refs/heads/aside" };
        assert!(fs::read_to_string(left.at.as_path().join(file)).unwrap().contains(commit), "{work:?}");
    }
}

/// The ref stands for another one, and its log alone names the commit.
#[test]
fn edits_behind_a_symbolic_ref_stay_reachable() {
    let scene = edited_scene();
    let (told, left) = rejected(&scene, |upper| {
        each(upper, STASH);
        fs::write(upper.join(".git/refs/stash"), "ref: refs/heads/main\n").unwrap();
    });
    let [Holds::Stash(commit)] = &told[..] else { panic!("{told:?}") };
    assert!(has_edit(&scene, commit) && left.unwrap().to_string().contains(commit));
    // Nothing names it any more.
    let scene = edited_scene();
    let (told, left) = rejected(&scene, |upper| {
        each(upper, STASH);
        fs::remove_file(upper.join(".git/logs/refs/stash")).unwrap();
        fs::write(upper.join(".git/refs/stash"), "ref: refs/nothing\n").unwrap();
    });
    assert_eq!(told, [Holds::Unread]);
    assert!(left.unwrap().to_string().contains("git fsck --lost-found"));
}

#[test]
fn tables_of_refs_that_wait_are_kept_and_named_unread() {
    for work in [STASH, BRANCH] {
        let scene = with_tables();
        if !scene.ws().join(".git/reftable").is_dir() {
            // An older git.
            return;
        }
        let (told, left) = rejected(&scene, |upper| each(upper, work));
        assert_eq!(fs::read_to_string(scene.ws().join("work")).unwrap(), "base\n", "{work:?}");
        assert_eq!(told, [Holds::Unread], "{work:?}");
        let left = left.expect("the tables have the only name of the commit");
        assert!(left.to_string().contains("git fsck --lost-found"), "{left}");
        assert!(left.at.as_path().join("upper/.git/reftable/tables.list").is_file());
        let told = git(&scene.ws(), &["fsck", "--lost-found"]);
        let commits: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("dangling commit ")).collect();
        assert!(commits.iter().any(|commit| has_edit(&scene, commit)), "{work:?}: {told}");
    }
}

/// The twins: nothing was taken out of the working tree, another ref that comes names the commit, or the commit is one of before.
#[test]
fn a_ref_that_holds_nothing_of_the_user_is_not_named() {
    let quiet = |scene: &Scene, work: &dyn Fn(&Path)| {
        let (told, left) = rejected(scene, work);
        // A log may have a line in common with an old version of the index.
        assert!(told.is_empty() && left.is_none_or(|left| !left.to_string().contains("git ")), "{told:?}");
    };
    quiet(&edited_scene(), &|upper| {
        end_history(upper);
        each(upper, &[&["stash", "list"], &["commit", "-q", "--allow-empty", "-m", "empty"]]);
    });
    quiet(&edited_scene(), &|upper| {
        end_history(upper);
        each(upper, &[&["branch", "old-place", "main~1"]]);
        fs::write(upper.join("f"), "of the agent").unwrap();
    });
    quiet(&edited_scene(), &|upper| {
        each(upper, BRANCH);
        each(upper, &[&["symbolic-ref", "refs/heads/alias", "refs/heads/aside"]]);
    });
    // The ref comes.
    let scene = edited_scene();
    let result = commit_by(&scene, &run_with(&scene, |upper| each(upper, STASH)), &Rules::default());
    assert_eq!((parked(&result), result.stashes), (vec![], vec![]));
}

/// A ref that is accepted later does not count as a last copy any more.
#[test]
fn a_ref_that_came_keeps_no_layer() {
    let scene = edited_scene();
    let layer = run_with(&scene, |upper| {
        end_history(upper);
        each(upper, STASH);
    });
    assert_eq!(commit_by(&scene, &layer, &Rules::default()).stashes.len(), 1);
    drop(layer);
    let shallow = Rules { accept_protected: true, ..Rules::default() };
    let result = accept(&scene, &shallow);
    assert_eq!((parked(&result), result.left), (vec![], vec![]));
    assert!(git(&scene.ws(), &["stash", "list"]).contains("WIP on main"));
}

/// Each of these commits holds an edit of a few bytes, and its objects wait with the ref.
#[test]
fn small_objects_that_wait_are_last_copies() {
    for work in [STASH, BRANCH] {
        let scene = edited_scene();
        let layer = run_with(&scene, |upper| each(upper, work));
        let result = commit_by(&scene, &layer, &named(&["work"]));
        assert_eq!(fs::read_to_string(scene.ws().join("work")).unwrap(), "base\n", "{work:?}: {result:?}");
        let [stash] = &result.stashes[..] else { panic!("{work:?}: {result:?}") };
        let commit = stash.commit().unwrap();
        let waiting = layer.upper().join(".git/objects");
        assert!(stash.to_string().contains(waiting.to_str().unwrap()), "{stash}");
        let left = layer.discard().unwrap().expect("the layer has the only copy of the edit");
        let objects = left.at.as_path().join("upper/.git/objects");
        let said = left.to_string();
        assert!(said.contains(commit) && said.contains(objects.to_str().unwrap()), "{said}");
        let alternates = format!("GIT_ALTERNATE_OBJECT_DIRECTORIES={}", objects.display());
        assert!(said.contains("GIT_ALTERNATE_OBJECT_DIRECTORIES"), "{said}");
        let shown = std::process::Command::new("env")
            .args([&alternates, "git", "-c", "safe.directory=*", "show", &format!("{commit}:work")])
            .current_dir(scene.ws())
            .output()
            .unwrap();
        assert!(String::from_utf8_lossy(&shown.stdout).contains("an edit of the user"), "{work:?}: {shown:?}");
    }
}

/// The ref comes, and the objects were rejected.
#[test]
fn objects_that_were_rejected_are_last_copies() {
    let scene = edited_scene();
    let layer = run_with(&scene, |upper| each(upper, STASH));
    let rules = Rules { except: vec![".git/objects".into()], ..Rules::default() };
    let result = commit_by(&scene, &layer, &rules);
    assert_eq!(fs::read_to_string(scene.ws().join("work")).unwrap(), "base\n", "{result:?}");
    let left = layer.discard().unwrap().expect("the layer has the only copy of the edit");
    assert!(left.at.as_path().join("upper/.git/objects").is_dir());
}

/// The user stashes something else once the commit is decided: the file comes without the edit, and the ref does not.
#[test]
fn edits_behind_a_ref_that_was_kept_back_stay_reachable() {
    for is_killed in [false, true] {
        let scene = edited_scene();
        let mut layer = run_with(&scene, |upper| each(upper, STASH));
        let commit = git(&layer.upper(), &["rev-parse", "refs/stash"]).trim().to_owned();
        let (journal, ws) = (scene.path("layers/run/journal"), scene.ws());
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            if !journal.exists() || ws.join(".git/refs/stash").exists() {
                return;
            }
            // As `git stash push -- h` does.
            let head = git(&ws, &["rev-parse", "HEAD"]);
            fs::write(ws.join(".git/refs/stash"), head).unwrap();
            if is_killed {
                std::panic::panic_any("crash");
            }
        })));
        let workspace = scene.workspace();
        let done = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()).unwrap()));
        drop(layer);
        let stashes = match done {
            Ok(result) => result.stashes,
            Err(_) => match recover(&scene.path("layers"), "run", &workspace).unwrap() {
                Recovered::RolledForward(done) => done.stashes,
                other => panic!("{other:?}"),
            },
        };
        assert_eq!(fs::read_to_string(scene.ws().join("work")).unwrap(), "base\n");
        let told: Vec<_> = stashes.iter().map(|one| one.holds.clone()).collect();
        assert_eq!(told, [Holds::Stash(commit.clone())], "{is_killed}");
        assert!(has_edit(&scene, &commit), "{is_killed}");
        let left = Layer::open(&scene.path("layers"), "run").unwrap().discard().unwrap();
        let left = left.expect("the layer has the only name of the commit");
        assert!(left.to_string().contains(&commit), "{left}");
        assert!(left.at.as_path().join("upper/.git/refs/stash").is_file());
    }
}
