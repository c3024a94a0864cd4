//! Objects of git stay in a layer as long as refs that need them wait there: with the real git and a real overlay.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene, dying};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::{Committed, Faults, Layer, LayerMode, Rules};
use repository::{accept, commit_by, git, named, parked};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// A repository with three commits, of which the user took the last one back.
fn scene_with_reset() -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main"]);
    for text in ["1", "2", "3"] {
        fs::write(ws.join("f"), text).unwrap();
        git(&ws, &["add", "."]);
        git(&ws, &["commit", "-q", "-m", text]);
    }
    git(&ws, &["reset", "-q", "--hard", "HEAD~1"]);
    scene
}

fn git_ops(work: &str) -> Vec<Op> {
    let words = |words: &str| words.split(' ').map(str::to_owned).collect();
    work.split(',').map(|one| Op::Git(words(one))).collect()
}

/// Work of a run whose refs wait: it takes away the last log that leads to the third commit.
const WAITS: &str = "reflog expire --expire=now --all,gc -q --prune=now,commit -q --allow-empty -m of-the-run";

/// The same without a pack.
const WAITS_LOOSE: &str = "reflog expire --expire=now --all,commit -q --allow-empty -m of-the-run";

fn prune(ws: &Path) {
    git(ws, &["prune", "--expire=now"]);
}

fn assert_sound(dir: &Path, context: &str) {
    let output = git(dir, &["fsck", "--full"]);
    assert!(
        !["missing", "broken", "error", "fatal", "invalid"].iter().any(|word| output.contains(word)),
        "{context}: {output}"
    );
}

fn subject(ws: &Path) -> String {
    git(ws, &["log", "-1", "--format=%s"]).trim().to_owned()
}

fn commit_first(scene: &Scene, work: &str, context: &str) -> Committed {
    let layer = scene.layer(&git_ops(work));
    let result = commit_by(scene, &layer, &Rules::default());
    assert!(parked(&result).iter().any(|path| path.starts_with(".git/")), "{context}: {result:?}");
    result
}

#[test]
fn refs_that_wait_come_with_their_objects_after_a_prune_of_the_host() {
    for work in [WAITS, WAITS_LOOSE] {
        for later in [&[][..], &["f"], &["nothing", "f"]] {
            let scene = scene_with_reset();
            let context = format!("{work} {later:?}");
            commit_first(&scene, work, &context);
            prune(&scene.ws());
            // An accept of something else takes nothing of it away.
            for path in later {
                accept(&scene, &named(&[path]));
                prune(&scene.ws());
            }
            assert_eq!(subject(&scene.ws()), "2", "{context}");
            let result = accept(&scene, &named(&[".git"]));
            assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{context}: {result:?}");
            assert_eq!(subject(&scene.ws()), "of-the-run", "{context}");
            assert_sound(&scene.ws(), &context);
        }
    }
}

/// The host moves the branch while the run works on it.
fn commit_beside_a_reset(work: &str) -> Scene {
    let scene = scene_with_reset();
    let layer = scene.layer(&git_ops(work));
    git(&scene.ws(), &["reset", "-q", "--hard", "HEAD~1"]);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert!(!result.conflicts.is_empty() || !result.parked.is_empty(), "{result:?}");
    scene
}

#[test]
fn a_commit_whose_ref_is_kept_back_is_kept_with_it() {
    for work in [
        "commit -q --allow-empty -m of-the-run",
        "commit -q --allow-empty -m a,gc -q,commit -q --allow-empty -m of-the-run",
    ] {
        let scene = commit_beside_a_reset(work);
        let ws = scene.ws();
        git(&ws, &["gc", "-q", "--prune=now"]);
        assert_sound(&ws, work);
        let left = Layer::open(&scene.path("layers"), "run").unwrap().discard().unwrap();
        let left = left.unwrap_or_else(|| panic!("{work}: nothing is kept"));
        let upper = left.at.as_path().join("upper");
        let branch = fs::read_to_string(upper.join(".git/refs/heads/main")).unwrap();
        fs::write(ws.join(".git/objects/info/alternates"), format!("{}\n", upper.join(".git/objects").display()))
            .unwrap();
        let shown = git(&ws, &["log", "-1", "--format=%s", branch.trim()]);
        assert_eq!(shown.trim(), "of-the-run", "{work}: {left}");
    }
}

/// The twin: no object stays where no ref waits.
#[test]
fn no_copies_are_made_where_all_refs_come() {
    let scene = scene_with_reset();
    let layer = scene.layer(&git_ops("commit -q --allow-empty -m of-the-run,config core.hooksPath of-the-run"));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [".git/config"]);
    assert!(!layer.upper().join(".git/objects").exists());
}

#[test]
fn copies_are_made_also_after_a_kill() {
    for work in [WAITS, WAITS_LOOSE] {
        for nth in 1.. {
            let scene = scene_with_reset();
            let mut layer = scene.layer(&git_ops(work));
            layer.set_faults(dying(&scene, nth));
            let context = format!("{work} {nth}");
            let died = catch_unwind(AssertUnwindSafe(|| drop(commit_by(&scene, &layer, &Rules::default())))).is_err();
            drop(layer);
            if died {
                recover_with(&scene.path("layers"), "run", &scene.workspace(), &Faults::default()).unwrap();
            }
            prune(&scene.ws());
            let result = accept(&scene, &named(&[".git"]));
            assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{context}: {result:?}");
            assert_eq!(subject(&scene.ws()), "of-the-run", "{context}");
            assert_sound(&scene.ws(), &context);
            if !died {
                assert!(nth > 10, "{context}");
                break;
            }
        }
    }
}

/// `git gc` on the host writes each log again, with the same entries.
#[test]
fn a_log_that_the_host_wrote_again_is_no_conflict() {
    let scene = scene_with_reset();
    let layer = scene.layer(&git_ops("commit -q --allow-empty -m of-the-run"));
    git(&scene.ws(), &["reflog", "expire", "--all"]);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    assert_eq!(subject(&scene.ws()), "of-the-run");
    assert_eq!(git(&scene.ws(), &["reflog"]).lines().count(), 5);
    // The twin: an entry of the host is none of the run.
    let scene = scene_with_reset();
    let layer = scene.layer(&git_ops("commit -q --allow-empty -m of-the-run"));
    git(&scene.ws(), &["reset", "-q", "--hard", "HEAD~1"]);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(subject(&scene.ws()), "1");
    let why = format!("{result:?}");
    assert!(why.contains("another process wrote to the log of HEAD") && !why.contains("lose its last"), "{why}");
}
