//! A repository that a run makes in the place of another one waits as a whole: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::{Committed, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_git, run_with};
use rustix::fs::XattrFlags;
use std::fs;
use std::path::Path;

/// A clone with a stash, a branch `side` and a commit that only its reflog names, and a repository of each kind in it.
fn scene() -> Scene {
    let scene = cloned_scene();
    let ws = scene.ws();
    let origin = scene.path("origin.git");
    let origin = origin.to_str().unwrap();
    for arguments in [
        &["clone", "-q", "--no-hardlinks", "--branch", "topic", origin, "sub"][..],
        &["clone", "-q", "--no-hardlinks", "--bare", origin, "b.git"],
        &["clone", "-q", "--no-hardlinks", "--separate-git-dir", "real.git", origin, "apart"],
        &["-C", "sub", "remote", "remove", "origin"],
        &["-C", "b.git", "remote", "remove", "origin"],
        &["-C", "apart", "remote", "remove", "origin"],
        &["remote", "remove", "origin"],
    ] {
        let told = git(&ws, arguments);
        assert!(!told.contains("fatal:") && !told.contains("error:"), "{arguments:?}: {told}");
    }
    for at in ["", "sub", "apart"] {
        let at = ws.join(at);
        git(&at, &["branch", "side"]);
        git(&at, &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        fs::write(at.join("f"), "of the user").unwrap();
        git(&at, &["stash", "-q"]);
    }
    scene
}

/// The working tree, its git directory, and the arguments that make another repository there.
type Place<'a> = (&'a str, &'a str, &'a [&'a str]);

const PLACES: [Place; 4] = [
    ("", ".git", &["init", "-q", "-b", "fresh"]),
    ("sub", "sub/.git", &["init", "-q", "-b", "fresh"]),
    ("b.git", "b.git", &["init", "-q", "--bare", "-b", "fresh"]),
    ("apart", "real.git", &["init", "-q", "-b", "fresh"]),
];

/// All names by which git finds commits.
fn names(at: &Path) -> String {
    ["for-each-ref", "stash list", "reflog --all", "--no-optional-locks status --short", "symbolic-ref HEAD"]
        .iter()
        .map(|line| git(at, &line.split(' ').collect::<Vec<_>>()))
        .collect()
}

fn mark_opaque(at: &Path) {
    rustix::fs::setxattr(at, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
}

/// A repository of the run stands in the place of the user's, with one commit; `opaque` is the new directory.
fn replaced(scene: &Scene, (tree, git_dir, init): Place, opaque: Option<&str>) -> Committed {
    let layer = run_with(scene, |upper| {
        let place = upper.join(git_dir);
        fs::remove_dir_all(&place).unwrap();
        if tree == "apart" {
            fs::create_dir(&place).unwrap();
            for name in ["objects", "refs"] {
                fs::create_dir(place.join(name)).unwrap();
            }
            fs::write(place.join("HEAD"), "ref: refs/heads/fresh\n").unwrap();
            // The working tree finds its git directory by an absolute path, which is that of the workspace.
            fs::write(upper.join("apart/.git"), format!("gitdir: {}\n", place.display())).unwrap();
        }
        fs::create_dir_all(upper.join(tree)).unwrap();
        git(&upper.join(tree), init);
        fs::write(upper.join("new"), "new").unwrap();
        if tree == "b.git" {
            let told = git(upper, &["push", "-q", "b.git", "mine:fresh"]);
            assert!(!told.contains("error"), "{told}");
        } else {
            git(&upper.join(tree), &["add", "-A", "."]);
            git(&upper.join(tree), &["commit", "-q", "-m", "fresh"]);
        }
        if tree == "apart" {
            fs::copy(scene.ws().join("apart/.git"), upper.join("apart/.git")).unwrap();
        }
        if let Some(opaque) = opaque {
            mark_opaque(&upper.join(opaque));
        }
    });
    commit_by(scene, &layer, &Rules::default())
}

#[test]
fn a_repository_that_replaces_another_one_waits_as_a_whole() {
    for place @ (tree, git_dir, _) in PLACES {
        let mut ways = vec![None, Some(git_dir)];
        if tree == "sub" {
            ways.push(Some(tree));
        }
        for opaque in ways {
            let scene = scene();
            let at = scene.ws().join(tree);
            let (before, fsck) = (names(&at), git(&at, &["fsck"]));
            let result = replaced(&scene, place, opaque);
            let case = format!("{git_dir} {opaque:?}");
            assert!(result.conflicts.is_empty(), "{case}: {result:?}");
            assert!(opaque == Some("sub") || scene.ws().join("new").exists(), "{case}: the rest comes");
            for part in ["HEAD", "refs/heads/fresh"] {
                assert!(parked(&result).contains(&format!("{git_dir}/{part}")), "{case} {part}: {result:?}");
            }
            let is_same = |what: &str| {
                let now = names(&at).replace("?? ../new\n", "").replace("?? new\n", "");
                assert_eq!(now, before, "{case} {what}");
                assert_eq!(git(&at, &["fsck"]), fsck, "{case} {what}");
            };
            is_same("after the run");
            if opaque == Some(git_dir) {
                // No part of it comes by its name, nor where another part was rejected.
                let part = format!("{git_dir}/refs/heads/fresh");
                let left = accept(&scene, &named(&[&part]));
                let why =
                    left.parked.iter().find(|one| one.path.0 == part.as_bytes()).and_then(|one| one.protected.clone());
                assert!(why.is_some_and(|why| why.ends_with(git_dir)), "{case}: {left:?}");
                is_same("after the accept of a part");
                let objects = vec![format!("{git_dir}/objects").as_str().into()];
                drop(accept(&scene, &Rules { accept_protected: true, except: objects, ..Rules::default() }));
                is_same("after the reject of a part");
            }
            let left = accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
            assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{case}");
            let told = git(&at, &["for-each-ref"]) + &git(&at, &["stash", "list"]);
            assert!(told.contains("refs/heads/fresh") && !told.contains("refs/heads/side"), "{case}: {told}");
            let told = git(&at, &["fsck"]);
            assert!(!told.contains("missing") && !told.contains("fatal"), "{case}: {told}");
        }
    }
}

/// The name of the git directory stands for all of it but what each accept asks about.
#[test]
fn a_replaced_repository_comes_by_its_name() {
    let scene = scene();
    replaced(&scene, PLACES[0], Some(".git"));
    let left = accept(&scene, &named(&[".git"]));
    assert!(!parked(&left).iter().any(|path| path.contains("/refs/") || path.ends_with("HEAD")), "{left:?}");
    assert!(git(&scene.ws(), &["log", "--oneline", "--all"]).contains("fresh"));
}

/// Without its parts a git directory is as good as gone.
#[test]
fn a_repository_that_loses_its_parts_waits_as_a_whole() {
    for parts in
        [&["HEAD", "refs", "index", "logs", "packed-refs", "config"][..], &["refs", "logs"], &["HEAD", "index"]]
    {
        let scene = scene();
        let before = names(&scene.ws());
        let layer = run_with(&scene, |upper| {
            for part in parts.iter().map(|part| upper.join(".git").join(part)).filter(|part| part.exists()) {
                if part.is_dir() { fs::remove_dir_all(part).unwrap() } else { fs::remove_file(part).unwrap() }
            }
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty() && parked(&result).len() >= parts.len() - 1, "{parts:?} {result:?}");
        assert_eq!(names(&scene.ws()), before, "{parts:?}");
    }
}

/// The working tree elsewhere has nothing but the file that names it.
#[test]
fn a_git_directory_beside_its_working_tree_does_not_go_unasked() {
    for (gone, waits) in [("real.git", true), ("b.git", false), ("dir", true)] {
        let scene = scene();
        if gone == "dir" {
            fs::create_dir(scene.ws().join("dir")).unwrap();
            fs::rename(scene.ws().join("real.git"), scene.ws().join("dir/real.git")).unwrap();
            fs::write(scene.ws().join("apart/.git"), "gitdir: ../dir/real.git\n").unwrap();
        }
        let layer = run_with(&scene, |upper| fs::remove_dir_all(upper.join(gone)).unwrap());
        let result = commit_by(&scene, &layer, &Rules::default());
        let wanted: &[&str] = if waits { &[gone] } else { &[] };
        assert_eq!((parked(&result), result.conflicts.len()), (wanted.iter().map(ToString::to_string).collect(), 0));
        drop(layer);
        if waits {
            assert!(git(&scene.ws().join("apart"), &["branch"]).contains("side"));
            let left = accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
            assert_eq!((parked(&left), scene.ws().join(gone).exists()), (vec![], false), "{left:?}");
        }
    }
}

/// The twins: what git itself does to refs, reflogs and packs in ordinary work.
#[test]
fn ordinary_work_of_git_replaces_no_repository() {
    let works: [&[&[&str]]; 12] = [
        &[&["gc", "-q", "--prune=now"]],
        &[&["pack-refs", "--all"], &["checkout", "-q", "-b", "new"]],
        &[&["branch", "-D", "mine"], &["branch", "-D", "old"]],
        &[&["fetch", "-q", "--prune"], &["checkout", "-q", "old"]],
        &[&["clone", "-q", ".", "copy"], &["init", "-q", "other"]],
        &[&["init", "-q"], &["commit", "-q", "--allow-empty", "--amend", "-m", "amended"]],
        &[&["checkout", "-q", "--orphan", "o"], &["commit", "-q", "-m", "o"], &["branch", "-D", "main", "mine", "old"]],
        &[&["reflog", "expire", "--expire=now", "--all"], &["branch", "-D", "mine", "old"]],
        &[&["stash", "clear"], &["checkout", "-q", "--detach"], &["branch", "-D", "mine", "main", "old"]],
        &[&["branch", "-m", "renamed"], &["tag", "v1"], &["tag", "-d", "v1"]],
        &[&["reset", "-q", "--hard"], &["switch", "-q", "mine"], &["merge", "-q", "old"], &["pull", "-q"]],
        &[&["remote", "update"], &["rebase", "-q", "old"], &["commit", "-q", "--allow-empty", "-m", "x"]],
    ];
    for work in works {
        let scene = cloned_scene();
        let result = commit_by(
            &scene,
            &run_with(&scene, |upper| {
                for arguments in work {
                    git(upper, arguments);
                }
            }),
            &Rules::default(),
        );
        let is_quiet = |why: &str| !why.contains("replaces a git repository");
        assert!(result.parked.iter().all(|one| one.protected.as_deref().is_none_or(is_quiet)), "{work:?}: {result:?}");
        assert!(result.conflicts.is_empty() && !result.changes.changes.is_empty(), "{work:?}: {result:?}");
    }
    // A bare repository has no reflog.
    let scene = cloned_scene();
    git(
        &scene.ws(),
        &["clone", "-q", "--bare", "--single-branch", scene.path("origin.git").to_str().unwrap(), "b.git"],
    );
    git(&scene.ws(), &["-C", "b.git", "remote", "remove", "origin"]);
    let work: [&[&str]; 2] =
        [&["commit", "-q", "--allow-empty", "-m", "2"], &["push", "-q", "-f", "b.git", "HEAD:old", "HEAD:main"]];
    let result = commit_by(&scene, &run_git(&scene, &work), &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
}

/// The same repository again, as `mv` leaves it in the layer of an ordinary user, loses nothing.
#[test]
fn a_repository_that_comes_back_as_it_was_is_quiet() {
    let scene = scene();
    let layer = run_with(&scene, |upper| {
        mark_opaque(&upper.join(".git"));
        git(upper, &["branch", "of-the-run"]);
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
}
