//! A run that takes the names of the user's commits away: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Scene, wait_for_tick};
use nexus_facility::{Layer, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_with};
use std::fs;
use std::path::Path;
use std::process::Command;

fn sh(directory: &Path, work: &str) {
    let output = Command::new("sh").args(["-ec", work]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{work}: {output:?}");
}

/// The branches, the reflog and the history of a repository.
fn known(repository: &Path) -> String {
    [&["for-each-ref"][..], &["reflog"], &["log", "--oneline", "HEAD"]].map(|work| git(repository, work)).concat()
}

/// A clone, or a bare one in it.
fn scene(is_bare: bool, is_packed: bool) -> (Scene, &'static str) {
    let scene = cloned_scene();
    let place = if is_bare { "b.git" } else { "" };
    if is_bare {
        git(&scene.ws(), &["clone", "-q", "--bare", "--no-hardlinks", ".", "b.git"]);
        // git makes it with packed refs.
        let head = git(&scene.ws(), &["rev-parse", "main"]);
        if !is_packed {
            fs::remove_file(scene.ws().join("b.git/packed-refs")).unwrap();
            fs::write(scene.ws().join("b.git/refs/heads/main"), head).unwrap();
        }
    } else if is_packed {
        git(&scene.ws(), &["pack-refs", "--all"]);
    }
    (scene, place)
}

#[test]
fn branches_and_logs_of_the_user_do_not_go_unasked() {
    const FRESH: &str = "git add .; git -c user.name=a -c user.email=a@b commit -qam fresh";
    let lost = "HEAD names refs/heads/main, which would have no commit any more";
    let (gone, cut) = ("(logs/HEAD) would be gone", "(logs/HEAD) would lose its last entry");
    for (is_packed, work, reason) in [
        (false, "rm -rf .git/refs/heads .git/packed-refs .git/logs", lost),
        (false, "rm -rf .git/refs/heads", lost),
        (false, "rm -rf .git/refs/heads/*", lost),
        (false, "find . -name main -delete", lost),
        (false, "git update-ref -d refs/heads/main", lost),
        (true, "rm -rf .git/packed-refs .git/logs", lost),
        (true, "rm .git/packed-refs", lost),
        (true, "sed -i /heads.main/d .git/packed-refs", lost),
        (false, "rm -rf .git/logs", gone),
        (false, "rm .git/logs/HEAD", gone),
        (false, &format!("rm -rf .git/refs/heads/* .git/logs; {FRESH}"), cut),
        (true, &format!("rm -rf .git/packed-refs .git/logs; {FRESH}"), cut),
        (false, &format!("rm -rf .git/refs/*/*; {FRESH}; : > .git/logs/HEAD"), cut),
        (false, "sed -i '$d' .git/logs/HEAD", cut),
    ] {
        let (scene, _) = scene(false, is_packed);
        let before = known(&scene.ws());
        let layer = run_with(&scene, |upper| {
            sh(upper, work);
            fs::write(upper.join("z"), "z").unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty() && scene.ws().join("z").exists(), "{work}: {result:?}");
        assert_eq!(known(&scene.ws()), before, "{work}: {result:?}");
        let waits =
            |why: &str| result.parked.iter().any(|one| one.protected.as_ref().is_some_and(|one| one.contains(why)));
        assert!(waits(reason) && waits("nexus changes accept .git"), "{work}: {result:?}");
        drop(layer);
        // A part does not come by its name, and the whole does.
        accept(&scene, &named(&[".git/logs", ".git/refs/heads/main", ".git/packed-refs"]));
        assert_eq!(known(&scene.ws()), before, "{work}");
        assert_eq!(parked(&accept(&scene, &named(&[".git"]))), [""; 0], "{work}");
        assert_ne!(known(&scene.ws()), before, "{work}");
    }
}

/// A bare repository has no log of `HEAD`.
#[test]
fn a_bare_repository_keeps_the_branch_of_its_head() {
    for (is_packed, work, is_lost) in [
        (false, "rm -rf refs/heads/main", true),
        (true, "rm packed-refs", true),
        (true, "git branch -D mine", false),
        (true, "git branch -m main renamed", false),
        (false, "git pack-refs --all; git gc -q", false),
        (true, "git update-ref refs/heads/main refs/heads/old", false),
    ] {
        let (scene, place) = scene(true, is_packed);
        let at = scene.ws().join(place);
        let before = known(&at);
        let layer = run_with(&scene, |upper| sh(&upper.join(place), work));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((result.parked.is_empty(), result.conflicts.len()), (!is_lost, 0), "{work}: {result:?}");
        if is_lost {
            assert_eq!(known(&at), before, "{work}");
        }
    }
}

/// The twins: ordinary work with branches and logs.
#[test]
fn ordinary_work_with_branches_comes_unasked() {
    for work in [
        "git branch -D mine old",
        "git branch -m renamed",
        "git branch -M mine",
        "git branch -m master; git branch -D mine",
        "git checkout -q -b new; echo x > x; git add x; git commit -qm x; git branch -D main",
        "git switch -q --orphan fresh; echo x > x; git add x; git commit -qm x",
        "git switch -q --orphan fresh",
        "git checkout -q --orphan fresh; git commit -qam x; git branch -D main; git branch -m main",
        "echo x > f; git commit -qam x; git reset -q --hard HEAD~",
        "echo x > f; git commit -qam x; git commit -q --amend -m y; git rebase -q --root",
        "echo x > f; git stash -q; git stash pop -q; git stash -q; git stash drop -q",
        "git gc -q --prune=now; git pack-refs --all --prune",
        "git checkout -q --detach; git checkout -q main",
        "git reflog expire --expire=now --all; git gc -q --prune=now",
        "git reflog expire --all; git reflog delete --rewrite mine@{0}",
        "git checkout -q old; git merge -q main; git branch -d main",
        "rm -rf .git/refs/heads/mine .git/logs/refs/heads/mine",
    ] {
        for is_packed in [false, true] {
            let (scene, _) = scene(false, is_packed);
            let mut wanted = String::new();
            let layer = run_with(&scene, |upper| {
                sh(
                    upper,
                    &format!(
                        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_EDITOR=true; {work}"
                    ),
                );
                wanted = known(upper);
            });
            let result = commit_by(&scene, &layer, &Rules::default());
            // The settings of a branch that gets another name wait.
            let waits: Vec<_> = parked(&result).into_iter().filter(|path| path != ".git/config").collect();
            assert_eq!((waits, result.conflicts.len()), (vec![], 0), "{is_packed} {work}: {result:?}");
            assert_eq!(known(&scene.ws()), wanted, "{is_packed} {work}");
        }
    }
}

/// git expires an entry that is older than it keeps any.
#[test]
fn an_old_entry_of_the_log_may_expire() {
    for (age, waits) in [(29, true), (31, false)] {
        let (scene, _) = scene(false, false);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let log = scene.ws().join(".git/logs/HEAD");
        let head = git(&scene.ws(), &["rev-parse", "HEAD"]);
        let (zeros, head, time) = ("0".repeat(40), head.trim(), now - age * 24 * 60 * 60);
        fs::write(&log, format!("{zeros} {head} N <n@x> {time} +0000\told\n")).unwrap();
        let layer = run_with(&scene, |upper| {
            let log = upper.join(".git/logs/HEAD");
            fs::write(&log, format!("{head} {head} N <n@x> {now} +0000\tof the run\n")).unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!(!parked(&result).is_empty(), waits, "{age}: {result:?}");
    }
}

/// A layer that has these files and nothing else.
fn layer_of(scene: &Scene, files: &[(&str, &str)]) -> Layer {
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    for (path, text) in files {
        let at = layer.upper().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    layer
}

/// A log that is emptied comes where another name leads to the commit of its last entry, in the workspace or in the layer.
#[test]
fn a_log_may_be_emptied_while_a_ref_names_its_commit() {
    const LOG: &str = ".git/logs/HEAD";
    for (is_moved, is_kept, waits) in [(false, false, false), (true, false, true), (true, true, false)] {
        let (scene, _) = scene(false, false);
        git(&scene.ws(), &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        let [new, old] = ["main", "main~"].map(|name| git(&scene.ws(), &["rev-parse", name]));
        let mut run = vec![(LOG, "")];
        if is_moved {
            run.push((".git/refs/heads/main", &old));
        }
        if is_kept {
            run.push((".git/refs/heads/kept", &new));
        }
        let result = commit_by(&scene, &layer_of(&scene, &run), &Rules::default());
        assert_eq!(parked(&result).contains(&LOG.to_owned()), waits, "{is_moved} {is_kept}: {result:?}");
    }
    // One that is empty may go away.
    let (scene, _) = scene(false, false);
    fs::write(scene.ws().join(LOG), "").unwrap();
    let layer = run_with(&scene, |upper| fs::remove_file(upper.join(LOG)).unwrap());
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
}

/// `HEAD` of the user names a branch that has no commit yet.
#[test]
fn a_branch_without_a_commit_is_not_lost() {
    let (scene, _) = scene(false, false);
    git(&scene.ws(), &["checkout", "-q", "--orphan", "fresh"]);
    let layer = run_with(&scene, |upper| drop(git(upper, &["branch", "new", "main"])));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    assert!(scene.ws().join(".git/refs/heads/new").exists());
}
