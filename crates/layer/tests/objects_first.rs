//! No ref comes without its objects: with the real git.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::{Faults, Layer, Rules, recover};
use repository::{accept, cloned_scene, git, parked, run_with};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A run that commits, on a new branch and with a further file. Returns a directory of objects that only the run has.
fn committed() -> (Scene, Layer, PathBuf) {
    let scene = cloned_scene();
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("g"), "of the run").unwrap();
        for work in [&["checkout", "-q", "-b", "a/b"][..], &["add", "."], &["commit", "-q", "-m", "of the run"]] {
            git(upper, work);
        }
    });
    let is_new = |directory: &PathBuf| !scene.ws().join(directory).exists();
    // The ids of commits differ from run to run, and the workspace may have an object with the same beginning.
    let mut directories = ["HEAD:g", "HEAD:", "HEAD"].into_iter().map(|name| {
        let id = git(&layer.upper(), &["rev-parse", name]);
        Path::new(".git/objects").join(&id[..2])
    });
    let directory = directories.find(is_new).unwrap();
    (scene, layer, directory)
}

/// Makes the directory as a fetch of the host does, once the commit is decided. Dies before the call with the number `nth` after
/// that.
fn occupied(scene: &Scene, directory: &Path, nth: Option<u64>) -> Faults {
    let (journal, place) = (scene.path("layers/run/journal"), scene.ws().join(directory));
    let calls = AtomicU64::new(0);
    Faults::default().between(Arc::new(move |_| {
        if !journal.exists() {
            return;
        }
        if !place.exists() {
            fs::create_dir(&place).unwrap();
        }
        if Some(calls.fetch_add(1, Ordering::SeqCst) + 1) == nth {
            std::panic::panic_any("crash");
        }
    }))
}

/// Asserts that git finds every object that a name of the workspace leads to.
fn is_whole(scene: &Scene, context: &str) {
    let told = git(&scene.ws(), &["fsck", "--full"]);
    assert!(!["missing", "broken", "error", "fatal"].iter().any(|word| told.contains(word)), "{context}: {told}");
    let status = git(&scene.ws(), &["--no-optional-locks", "status", "--short"]);
    assert!(!status.contains("fatal") && !status.contains("error"), "{context}: {status}");
}

#[test]
fn a_ref_waits_with_an_object_that_was_kept_back() {
    let (scene, mut layer, directory) = committed();
    layer.set_faults(occupied(&scene, &directory, None));
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(result.conflicts.len(), 1, "{result:?}");
    is_whole(&scene, "a part came");
    assert_eq!(fs::read_to_string(scene.ws().join("g")).unwrap(), "of the run");
    assert!(git(&scene.ws(), &["log", "--oneline", "--all"]).lines().count() == 1);
    let waits = parked(&result);
    for path in [".git/HEAD", ".git/logs/HEAD", ".git/index", ".git/refs/heads/a", ".git/logs/refs/heads/a"] {
        assert!(waits.iter().any(|one| one == path), "{path}: {waits:?}");
    }
    drop(layer);
    let left = accept(&scene, &Rules::default());
    assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{left:?}");
    is_whole(&scene, "all came");
    assert!(git(&scene.ws(), &["log", "--oneline", "-1"]).contains("of the run"));
}

/// A commit that another process is in the way of is killed anywhere, and gone on with.
#[test]
fn no_ref_comes_without_its_objects_after_a_kill() {
    let (mut kills, mut nth) = (0, 1);
    loop {
        let (scene, mut layer, directory) = committed();
        layer.set_faults(occupied(&scene, &directory, Some(nth)));
        let workspace = scene.workspace();
        let done = catch_unwind(AssertUnwindSafe(|| drop(layer.commit(&workspace, &Rules::default()))));
        drop(layer);
        is_whole(&scene, &format!("killed at {nth}"));
        recover(&scene.path("layers"), "run", &workspace).unwrap();
        is_whole(&scene, &format!("gone on at {nth}"));
        if done.is_ok() {
            break;
        }
        (kills, nth) = (kills + 1, nth + 5);
    }
    assert!(kills > 3, "{kills}");
}

/// The twin: nothing is in the way.
#[test]
fn a_commit_with_all_its_objects_comes_whole() {
    let (scene, layer, _) = committed();
    let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    is_whole(&scene, "all came");
    assert!(git(&scene.ws(), &["log", "--oneline", "-1"]).contains("of the run"));
}
