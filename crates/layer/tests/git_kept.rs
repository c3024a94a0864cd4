//! Commits, stashes and working trees to which only git's files lead outlive a run: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::entries::protected::Class;
use nexus_layer::{Committed, Host, Layer, LayerMode, Reach, Rules};
use repository::{
    accept, cloned_scene, commit_by, git, named, parked, run_git, run_with, scene_with_work, waits_after,
};
use std::fs;
use std::path::{Path, PathBuf};

/// A clone with a branch `other` that conflicts with `main`, and an edit that is not committed.
fn edited_scene() -> Scene {
    let scene = scene_with_work();
    let ws = scene.ws();
    for branch in ["other", "main"] {
        git(&ws, &["checkout", "-q", "-B", branch, "main"]);
        fs::write(ws.join("f"), branch).unwrap();
        git(&ws, &["commit", "-q", "-a", "-m", branch]);
    }
    fs::write(ws.join("work"), "base\nan edit of the user\n").unwrap();
    scene
}

/// git took the edit out of the working tree, and only the file that waits names the commit with it.
#[test]
fn edits_that_git_stashes_by_itself_stay_reachable() {
    for work in ["merge", "rebase"] {
        let scene = edited_scene();
        let ws = scene.ws();
        let layer = run_with(&scene, |upper| drop(git(upper, &[work, "--autostash", "other"])));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty(), "{work}: {result:?}");
        assert_eq!(fs::read_to_string(ws.join("work")).unwrap(), "base\n", "{work}");
        let [stash] = &result.stashes[..] else { panic!("{work}: {result:?}") };
        let commit = stash.commit().unwrap();
        assert!(git(&ws, &["show", &format!("{commit}:work")]).contains("an edit of the user"));
        let left = layer.discard().unwrap().expect("the layer has a last copy");
        let said = left.to_string();
        assert!(said.contains(&format!("git stash apply {commit}")), "{work}: {said}");
        let named = left.at.as_path().join("upper").join(stash.path.as_path());
        assert!(fs::read_to_string(named).unwrap().contains(commit), "{work}");
        git(&ws, &["checkout", "-q", "-f", "main"]);
        git(&ws, &["stash", "apply", commit]);
        assert!(fs::read_to_string(ws.join("work")).unwrap().contains("an edit of the user"), "{work}");
    }
}

#[test]
fn the_commit_is_named_when_its_file_goes_away() {
    for (begin, end) in [("merge", "--abort"), ("merge", "--quit"), ("rebase", "--abort")] {
        let scene = edited_scene();
        git(&scene.ws(), &[begin, "--autostash", "other"]);
        let layer = run_git(&scene, &[&[begin, end]]);
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result), result.stashes.len()), (vec![], 1), "{begin} {end}: {result:?}");
        let shown = git(&scene.ws(), &["show", &format!("{}:work", result.stashes[0].commit().unwrap())]);
        assert!(shown.contains("an edit of the user"), "{begin} {end}: {shown}");
    }
}

/// The twin: what git leaves in ordinary work names nothing, and a reject keeps nothing.
#[test]
fn without_such_a_stash_nothing_is_kept() {
    let scene = edited_scene();
    git(&scene.ws(), &["checkout", "-q", "--", "work"]);
    let layer = run_with(&scene, |upper| drop(git(upper, &["rebase", "other"])));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(result.stashes, []);
    assert!(parked(&result).contains(&".git/rebase-merge".to_owned()), "{result:?}");
    drop(layer);
    let left = Layer::open(&scene.path("layers"), "run").unwrap().discard().unwrap();
    assert!(left.is_none_or(|left| !left.to_string().contains("git stash")));
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

/// Removes what `git worktree prune` removes in a sandbox, which does not show the working tree.
fn pruned(scene: &Scene, path: &str) -> Vec<(String, String)> {
    let layer = run_with(scene, |upper| remove(&upper.join(path)));
    let result = commit_by(scene, &layer, &Rules::default());
    assert!(result.conflicts.is_empty(), "{result:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    result.parked.into_iter().map(|one| (text(&one.path.0), one.protected.unwrap_or_default())).collect()
}

#[test]
fn what_a_further_working_tree_needs_does_not_go_unasked() {
    for path in [".git/worktrees", ".git/worktrees/wt", ".git/worktrees/wt/gitdir", ".git/worktrees/wt/HEAD"] {
        for inside in [false, true] {
            let scene = cloned_scene();
            let wt = if inside { scene.ws().join("wt") } else { scene.path("wt") };
            git(&scene.ws(), &["worktree", "add", "-q", "--detach", wt.to_str().unwrap()]);
            git(&wt, &["commit", "-q", "--allow-empty", "-m", "detached"]);
            let waits = pruned(&scene, path);
            assert_eq!(waits[0].0, path, "{inside}: {waits:?}");
            assert!(waits[0].1.contains(wt.to_str().unwrap()), "{waits:?}");
            assert!(git(&wt, &["log", "--oneline"]).contains("detached"), "{path} {inside}");
        }
    }
}

/// The twins: nothing needs the objects that go away.
#[test]
fn a_further_working_tree_that_is_gone_is_pruned() {
    let scene = cloned_scene();
    git(&scene.ws(), &["worktree", "add", "-q", "--detach", "../wt"]);
    fs::remove_dir_all(scene.path("wt")).unwrap();
    assert_eq!(pruned(&scene, ".git/worktrees"), []);
    let scene = cloned_scene();
    git(&scene.ws(), &["worktree", "add", "-q", "--detach", "../wt"]);
    fs::remove_dir_all(scene.path("wt")).unwrap();
    fs::create_dir(scene.path("wt")).unwrap();
    assert_eq!(pruned(&scene, ".git/worktrees/wt"), []);
}

/// `git worktree lock` is for a working tree on a drive that is not always mounted.
#[test]
fn a_locked_working_tree_counts_as_there() {
    for (is_locked, path) in [(true, ".git/worktrees"), (true, ".git/worktrees/wt"), (false, ".git/worktrees/wt")] {
        let scene = cloned_scene();
        let wt = scene.path("wt");
        git(&scene.ws(), &["worktree", "add", "-q", "--detach", "../wt"]);
        git(&wt, &["commit", "-q", "--allow-empty", "-m", "detached"]);
        if is_locked {
            git(&scene.ws(), &["worktree", "lock", "../wt"]);
        }
        fs::rename(&wt, scene.path("away")).unwrap();
        let waits = pruned(&scene, path);
        fs::rename(scene.path("away"), &wt).unwrap();
        assert_eq!(waits.iter().any(|(waits, _)| waits == path), is_locked, "{path}: {waits:?}");
        assert_eq!(git(&wt, &["log", "--oneline"]).contains("detached"), is_locked, "{path}");
    }
}

/// The removal of its working tree waits, as the `.git` in it is protected.
#[test]
fn a_working_tree_and_its_git_directory_wait_together() {
    let scene = cloned_scene();
    let wt = scene.ws().join("wt");
    git(&scene.ws(), &["worktree", "add", "-q", "--detach", wt.to_str().unwrap()]);
    let layer = run_with(&scene, |upper| ["wt", ".git/worktrees"].iter().for_each(|path| remove(&upper.join(path))));
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [".git/worktrees", "wt"], "{result:?}");
    assert!(!git(&wt, &["log", "--oneline"]).contains("fatal"));
    drop(layer);
    let left = accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
    assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{left:?}");
    assert!(!wt.exists() && !scene.ws().join(".git/worktrees").exists());
}

/// With the new branch and the old index, the user's next commit would delete what the run committed.
#[test]
fn the_branch_waits_with_an_index_that_waits() {
    const WITH: [&str; 3] = [".git/index", ".git/logs/HEAD", ".git/logs/refs/heads/main"];
    let hide = ["update-index", "--skip-worktree", "src/f"];
    let commit: [&[&str]; 2] = [&hide, &["commit", "-q", "--allow-empty", "-m", "of the run"]];
    for (pack, branch) in [(&[][..], ".git/refs/heads/main"), (&["pack-refs", "--all"][..], ".git/packed-refs")] {
        let scene = cloned_scene();
        let ws = scene.ws();
        if !pack.is_empty() {
            git(&ws, pack);
        }
        let new: &[&[&str]] = &[&["mv", "f", "renamed"]];
        let packs: &[&[&str]] = if pack.is_empty() { &[] } else { &[pack] };
        let layer = run_git(&scene, &[new, &commit[..], packs].concat());
        let result = commit_by(&scene, &layer, &Rules::default());
        let mut wanted = [&WITH[..], &[branch]].concat();
        wanted.sort_unstable();
        assert_eq!(parked(&result), wanted, "{result:?}");
        let status = git(&ws, &["status", "--short"]);
        assert!(!status.contains("D  renamed"), "{status}");
        git(&ws, &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        assert!(!git(&ws, &["show", "--stat", "HEAD"]).contains("renamed"));
        assert!(!git(&ws, &["fsck"]).contains("error"));
    }
    // Accepted by its name, the index comes, and then nothing keeps the branch.
    let scene = cloned_scene();
    drop(commit_by(&scene, &run_git(&scene, &commit), &Rules::default()));
    assert!(!git(&scene.ws(), &["log", "--oneline"]).contains("of the run"));
    accept(&scene, &named(&[".git/index"]));
    assert_eq!(parked(&accept(&scene, &Rules::default())), [""; 0]);
    assert!(git(&scene.ws(), &["log", "--oneline"]).contains("of the run"));
    // The twin: another branch comes.
    assert_eq!(waits_after(&[&hide, &["branch", "-q", "aside"], &["tag", "v1"]]), [".git/index"]);
}

/// A run whose commit changes `f` and adds `h`, and what waits of it.
fn of_run(is_flagged: bool, rules: &Rules) -> (Scene, Committed) {
    let scene = cloned_scene();
    let layer = run_with(&scene, |upper| {
        fs::write(upper.join("f"), "of the run").unwrap();
        fs::write(upper.join("h"), "of the run").unwrap();
        git(upper, &["add", "."]);
        git(upper, &["commit", "-q", "-m", "of the run"]);
        if is_flagged {
            git(upper, &["update-index", "--skip-worktree", "src/f"]);
        }
    });
    // The run does not touch it.
    fs::remove_file(layer.upper().join("src/f")).unwrap();
    let result = commit_by(&scene, &layer, rules);
    (scene, result)
}

fn has_commit(scene: &Scene) -> bool {
    git(&scene.ws(), &["log", "--oneline"]).contains("of the run")
}

/// Writes the index again, as `git status` does after each change of a file's times, and editors by themselves. git
/// compares whole seconds.
fn refresh(scene: &Scene, date: &str) {
    let index = scene.ws().join(".git/index");
    let before = fs::read(&index).unwrap();
    let touched = std::process::Command::new("touch").args(["-d", date]).arg(scene.ws().join("src/f")).status();
    assert!(touched.unwrap().success());
    let told = git(&scene.ws(), &["status"]);
    assert!(fs::read(&index).unwrap() != before, "{told}");
}

#[test]
fn a_refreshed_index_is_no_conflict() {
    const BRANCH: &str = ".git/refs/heads/main";
    let all = Rules { accept_protected: true, ..Rules::default() };
    let nothing = Rules { only: Some(vec![]), ..Rules::default() };
    for (is_flagged, rules) in [(true, Rules::default()), (false, nothing)] {
        let (scene, result) = of_run(is_flagged, &rules);
        assert!(parked(&result).contains(&BRANCH.to_owned()) && !has_commit(&scene), "{result:?}");
        refresh(&scene, "2020-01-01");
        let left = accept(&scene, &named(&["f"]));
        assert_eq!(left.conflicts, []);
        refresh(&scene, "2021-01-01");
        let left = accept(&scene, &all);
        assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{left:?}");
        assert!(has_commit(&scene));
        assert_eq!(git(&scene.ws(), &["status", "--short"]), "");
    }
    // The twin: what the user staged is not stat data.
    for change in [&["add", "mine"][..], &["update-index", "--chmod=+x", "f"], &["rm", "-q", "--cached", "f"]] {
        let (scene, _) = of_run(true, &Rules::default());
        fs::write(scene.ws().join("mine"), "of the user").unwrap();
        git(&scene.ws(), change);
        let staged = git(&scene.ws(), &["diff", "--cached"]);
        let left = accept(&scene, &all);
        assert_eq!(left.conflicts.len(), 1, "{left:?}");
        assert_eq!(left.conflicts[0].path.0, b".git/index");
        assert_eq!(git(&scene.ws(), &["diff", "--cached"]), staged);
    }
}

/// A run that commits a new file, and does not touch `src/f`.
fn with_new_file(scene: &Scene) -> Layer {
    let layer = run_with(scene, |upper| {
        fs::write(upper.join("r"), "of the run").unwrap();
        git(upper, &["add", "r"]);
        git(upper, &["commit", "-q", "-m", "of the run"]);
    });
    fs::remove_file(layer.upper().join("src/f")).unwrap();
    layer
}

/// Git writes nothing, and the test writes the index in its place.
const IN_PLACE: &[&str] = &["--no-optional-locks", "status"];

/// An editor runs `git status` while the run works: nothing has been noted of the index yet.
#[test]
fn an_index_that_is_refreshed_during_a_run_is_no_conflict() {
    for writes in [false, true] {
        let scene = cloned_scene();
        let layer = with_new_file(&scene);
        refresh(&scene, "2020-01-01");
        if writes {
            // It is parked, and what the index said at the start is noted.
            let nothing = Rules { only: Some(vec![]), ..Rules::default() };
            drop((commit_by(&scene, &layer, &nothing), layer));
            refresh(&scene, "2021-01-01");
            let left = accept(&scene, &Rules::default());
            assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{left:?}");
        } else {
            let result = commit_by(&scene, &layer, &Rules::default());
            assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
        }
        assert!(has_commit(&scene));
        assert_eq!(git(&scene.ws(), &["status", "--short"]), "");
        assert!(!git(&scene.ws(), &["fsck"]).contains("missing"));
    }
    // The twins: the user stages something, or writes the index in its place.
    for change in [&["add", "mine"][..], &["update-index", "--chmod=+x", "f"], IN_PLACE] {
        let scene = cloned_scene();
        fs::write(scene.ws().join("mine"), "of the user").unwrap();
        let layer = with_new_file(&scene);
        git(&scene.ws(), change);
        if change == IN_PLACE {
            let index = scene.ws().join(".git/index");
            fs::write(&index, fs::read(&index).unwrap()).unwrap();
        }
        let result = commit_by(&scene, &layer, &Rules::default());
        let conflicts: Vec<_> = result.conflicts.iter().map(|one| one.path.0.as_slice()).collect();
        assert_eq!(conflicts, [b".git/index"], "{change:?}: {result:?}");
        assert!(!has_commit(&scene), "{change:?}");
    }
}

/// With the branch alone, the next commit of the user would delete `h` and undo `f`.
#[test]
fn no_accept_brings_a_branch_without_its_index() {
    const BRANCH: &str = ".git/refs/heads/main";
    let except = || vec![".git/index".into()];
    let all = || Rules { accept_protected: true, ..Rules::default() };
    let nothing = Rules { only: Some(vec![]), ..Rules::default() };
    for (is_flagged, rules) in [(true, Rules::default()), (false, nothing)] {
        for accepted in [
            Rules { except: except(), ..Rules::default() },
            Rules { except: except(), ..all() },
            named(&[BRANCH, ".git/objects"]),
            named(&[".git/HEAD", ".git/refs", ".git/logs", ".git/objects"]),
        ] {
            let (scene, _) = of_run(is_flagged, &rules);
            let left = accept(&scene, &accepted);
            let held = left.parked.iter().find(|one| one.path.0 == BRANCH.as_bytes()).unwrap();
            let why = held.protected.as_deref().unwrap_or_default();
            assert!(why.contains("accept that file first"), "{accepted:?}: {held:?}");
            assert!(!has_commit(&scene), "{accepted:?}");
            // With the index it comes.
            assert_eq!(parked(&accept(&scene, &all())), [""; 0]);
            assert!(has_commit(&scene) && git(&scene.ws(), &["status", "--short"]).is_empty());
        }
        // The user rejected the one and named the other.
        let (scene, _) = of_run(is_flagged, &rules);
        drop(accept(&scene, &named(&[".git/objects"])));
        let left = accept(&scene, &Rules { except: except(), ..named(&[BRANCH]) });
        assert!(has_commit(&scene), "{left:?}");
    }
    // The twin: without a change of the index nothing needs it.
    let scene = cloned_scene();
    let layer = run_git(&scene, &[&["commit", "-q", "--allow-empty", "-m", "of the run"]]);
    let result = commit_by(&scene, &layer, &Rules { except: except(), ..Rules::default() });
    assert!(has_commit(&scene) && result.conflicts.is_empty(), "{result:?}");
}

/// The remote gets two more commits, and the run fetches the last of them without its parents.
fn cut_off() -> (Scene, Committed) {
    let scene = cloned_scene();
    let other = scene.path("other");
    let origin = format!("file://{}", scene.path("origin.git").display());
    git(scene.dir.path(), &["clone", "-q", &origin, "other"]);
    for text in ["2", "3"] {
        fs::write(other.join("f"), text).unwrap();
        git(&other, &["commit", "-q", "-a", "-m", text]);
    }
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    git(&scene.ws(), &["remote", "set-url", "origin", &origin]);
    let layer = run_git(&scene, &[&["fetch", "-q", "--depth", "1", "origin"]]);
    let result = commit_by(&scene, &layer, &Rules::default());
    (scene, result)
}

/// Without it git takes the repository for damaged.
#[test]
fn a_ref_that_needs_a_shallow_file_comes_after_it() {
    const REF: &str = ".git/refs/remotes/origin/main";
    let rejected = Rules { accept_protected: true, except: vec![".git/shallow".into()], ..Rules::default() };
    for rules in [named(&[REF]), rejected] {
        let (scene, result) = cut_off();
        assert!(parked(&result).contains(&REF.to_owned()), "{result:?}");
        let left = accept(&scene, &rules);
        let held = left.parked.iter().find(|one| one.path.0 == REF.as_bytes()).unwrap();
        assert!(held.protected.as_deref().is_some_and(|why| why.contains("accept that file first")), "{held:?}");
        let told = git(&scene.ws(), &["log", "--oneline", "--all"]) + &git(&scene.ws(), &["fsck"]);
        assert!(!told.contains("fatal") && !told.contains("missing"), "{told}");
        // The twins: with the file, or after it, they come.
        let shallow = named(&[".git/shallow"]);
        let all = Rules { accept_protected: true, ..Rules::default() };
        let last = if rules.accept_protected {
            all
        } else {
            drop(accept(&scene, &shallow));
            named(&[REF])
        };
        assert!(!parked(&accept(&scene, &last)).contains(&REF.to_owned()));
        let told = git(&scene.ws(), &["log", "--oneline", "origin/main"]) + &git(&scene.ws(), &["fsck"]);
        assert!(told.contains('3') && !told.contains("fatal") && !told.contains("missing"), "{told}");
    }
}

/// git starts the programs of the shared configuration in each of them.
#[test]
fn each_working_tree_has_the_programs_of_the_configuration() {
    let scene = cloned_scene();
    let ws = scene.ws();
    git(&ws, &["worktree", "add", "-q", "wt", "-b", "fix"]);
    git(&ws, &["config", "core.hooksPath", "hk"]);
    let at = fs::canonicalize(&ws).unwrap();
    let host = Host::default();
    let rules = Rules::default().for_workspace(&scene.workspace(), &at, &host, Reach::COMMIT, &[]).unwrap();
    for (path, wanted) in [("hk/pre-commit", true), ("wt/hk/pre-commit", true), ("src/hk/pre-commit", false)] {
        assert_eq!(rules.class(path.as_bytes()) != Class::Plain, wanted, "{path}");
    }
}

/// The history becomes longer, and nothing is hidden.
#[test]
fn a_history_that_is_fetched_to_its_end_comes_unasked() {
    for is_fetched in [true, false] {
        let (scene, _) = cut_off();
        let ws = scene.ws();
        accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
        assert!(ws.join(".git/shallow").exists());
        let layer = if is_fetched {
            run_git(&scene, &[&["fetch", "-q", "--unshallow", "origin"]])
        } else {
            // Without the objects git would take the repository for damaged.
            run_with(&scene, |upper| fs::remove_file(upper.join(".git/shallow")).unwrap())
        };
        let result = commit_by(&scene, &layer, &Rules::default());
        let wanted: &[&str] = if is_fetched { &[] } else { &[".git/shallow"] };
        assert_eq!(
            (parked(&result).as_slice(), result.conflicts.len()),
            (&wanted.iter().map(ToString::to_string).collect::<Vec<_>>()[..], 0)
        );
        assert_eq!(ws.join(".git/shallow").exists(), !is_fetched);
        let told = git(&ws, &["log", "--oneline", "--all"]) + &git(&ws, &["fsck"]);
        assert!(!told.contains("fatal") && !told.contains("missing"), "{told}");
    }
}

/// Adds a commit to the branch of the origin by another clone.
fn push_more(scene: &Scene) {
    let other = scene.path("other");
    fs::write(other.join("f"), "4").unwrap();
    git(&other, &["commit", "-q", "-a", "-m", "4"]);
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
}

/// The fetch brings objects, and none of the history that `shallow` ended.
#[test]
fn a_fetch_without_the_shallow_file_breaks_no_history() {
    const REF: &str = ".git/refs/remotes/origin/main";
    let (scene, _) = cut_off();
    let ws = scene.ws();
    accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
    let before = git(&ws, &["rev-parse", "origin/main"]);
    push_more(&scene);
    let layer = run_with(&scene, |upper| {
        let missing = git(upper, &["cat-file", "-p", "origin/main"]);
        let parent = missing.lines().find(|line| line.starts_with("parent")).unwrap();
        drop(git(upper, &["fetch", "-q", "origin"]));
        fs::remove_file(upper.join(".git/shallow")).unwrap();
        let tree = git(upper, &["rev-parse", "HEAD^{tree}"]);
        let text = format!("tree {tree}{parent}\nauthor a <a@b> 1 +0000\ncommitter a <a@b> 1 +0000\n\nx\n");
        fs::write(upper.join("commit"), text).unwrap();
        let id = git(upper, &["hash-object", "-t", "commit", "-w", "commit"]);
        fs::write(upper.join(".git/refs/heads/broken"), id).unwrap();
        // A tag leads to the commit that it names.
        git(upper, &["tag", "-m", "x", "bad", "broken"]);
        git(upper, &["branch", "good"]);
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [".git/refs/heads/broken", ".git/refs/tags/bad", ".git/shallow"], "{result:?}");
    let why = |path: &str| result.parked.iter().find(|one| one.path.0 == path.as_bytes()).unwrap().protected.clone();
    assert!(why(".git/shallow").is_some_and(|why| why.contains("are not there")), "{result:?}");
    assert!(ws.join(".git/shallow").exists());
    assert_ne!(git(&ws, &["rev-parse", "origin/main"]), before, "{REF} has its history");
    let told = git(&ws, &["log", "--oneline", "--all"]) + &git(&ws, &["fsck"]);
    assert!(!["fatal", "missing", "broken", "error"].iter().any(|word| told.contains(word)), "{told}");
    assert!(ws.join(".git/refs/heads/good").exists());
}

/// Commits lie in packs as well, whole and as deltas.
#[test]
fn a_history_comes_to_its_end_in_packs() {
    let (scene, _) = cut_off();
    let ws = scene.ws();
    let other = scene.path("other");
    for number in 0..30 {
        let quoted = format!("parent {}", "1".repeat(40));
        let message = format!("{number}\n\n{quoted}\n{}", "a long message of which deltas are made\n".repeat(20));
        git(&other, &["commit", "-q", "--allow-empty", "-m", &message]);
    }
    git(&other, &["repack", "-q", "-a", "-d", "-f"]);
    let packed = git(&other, &["verify-pack", "-v", &format!("{}", index_of(&other).display())]);
    assert!(packed.lines().any(|line| line.contains(" commit ") && line.split_whitespace().count() == 7), "{packed}");
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
    git(&ws, &["fetch", "-q", "--depth", "1", "origin"]);
    let layer = run_git(
        &scene,
        &[&["-c", "fetch.unpackLimit=1", "fetch", "-q", "--unshallow", "origin"], &["repack", "-q", "-a", "-d"]],
    );
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    assert!(!ws.join(".git/shallow").exists());
    let told = git(&ws, &["log", "--oneline", "origin/main"]) + &git(&ws, &["fsck"]);
    assert!(told.lines().count() > 30 && !told.contains("fatal") && !told.contains("missing"), "{told}");
}

fn index_of(repository: &Path) -> PathBuf {
    let all = fs::read_dir(repository.join(".git/objects/pack")).unwrap().map(|entry| entry.unwrap().path());
    all.into_iter().find(|path| path.extension().is_some_and(|end| end == "idx")).unwrap()
}

/// A directory that was not looked through may hold a repository, and the reason does not say that it does.
#[test]
fn a_link_to_too_large_a_directory_says_so() {
    for (count, waits) in [(10, false), (20_001, true)] {
        let scene = Scene::new(LayerMode::Root, &[]);
        git(&scene.ws(), &["init", "-q", "a"]);
        fs::create_dir(scene.ws().join("large")).unwrap();
        for number in 0..count {
            fs::File::create(scene.ws().join(format!("large/{number}"))).unwrap();
        }
        let layer = scene.layer(&[]);
        fs::create_dir(layer.upper().join("a")).unwrap();
        std::os::unix::fs::symlink("../large", layer.upper().join("a/link")).unwrap();
        let result = commit_by(&scene, &layer, &Rules::default());
        let why = result.parked.iter().find(|one| one.path.0 == b"a/link").and_then(|one| one.protected.clone());
        assert_eq!(why.is_some_and(|why| why.contains("more entries than are looked through")), waits, "{result:?}");
    }
}

/// A working tree beside the workspace with a commit on no branch, and one on the branch `aside`.
fn with_trees_outside() -> (Scene, Vec<String>) {
    let scene = cloned_scene();
    let mut trees = Vec::new();
    for arguments in [&["--detach"][..], &["-b", "aside"]] {
        let wt = scene.path(if arguments.len() == 1 { "wt" } else { "aside" });
        let wt = wt.to_str().unwrap().to_owned();
        git(&scene.ws(), &[&["worktree", "add", "-q"], arguments, &[&wt]].concat());
        git(Path::new(&wt), &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        fs::write(Path::new(&wt).join("staged"), "staged").unwrap();
        git(Path::new(&wt), &["add", "staged"]);
        trees.push(wt);
    }
    (scene, trees)
}

fn texts(result: &Committed) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    result.parked.iter().map(|one| (text(&one.path.0), one.protected.clone().unwrap_or_default())).collect()
}

/// Names in `worktrees/wt` that wait, and the work of the run.
type Case<'a> = (&'a [&'a str], &'a dyn Fn(&Path));

/// A run does not see the working tree, and `git worktree prune` makes room for another one of its name.
#[test]
fn nothing_of_a_working_tree_outside_changes_unasked() {
    let at = ".git/worktrees/wt/";
    let cases: [Case; 4] = [
        (&["HEAD", "logs/HEAD", "index"], &|upper| {
            remove(&upper.join(".git/worktrees/wt"));
            git(upper, &["worktree", "add", "-q", "-b", "b2", "away/wt"]);
            // The run has it where the user has the other one.
            let tree = upper.parent().unwrap().parent().unwrap().parent().unwrap().join("wt/.git");
            fs::write(upper.join(".git/worktrees/wt/gitdir"), format!("{}\n", tree.display())).unwrap();
            remove(&upper.join("away"));
        }),
        (&["HEAD"], &|upper| fs::write(upper.join(at).join("HEAD"), "ref: refs/heads/mine\n").unwrap()),
        (&["gitdir"], &|upper| fs::write(upper.join(at).join("gitdir"), "/nowhere/.git\n").unwrap()),
        (&["ORIG_HEAD", "locked"], &|upper| {
            for name in ["ORIG_HEAD", "locked"] {
                fs::write(upper.join(at).join(name), "1".repeat(40)).unwrap();
            }
        }),
    ];
    for (wanted, work) in cases {
        let (scene, trees) = with_trees_outside();
        let wt = Path::new(&trees[0]);
        let before = git(wt, &["rev-parse", "HEAD"]);
        let layer = run_with(&scene, |upper| {
            fs::write(upper.join("z"), "z").unwrap();
            work(upper);
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty(), "{wanted:?}: {result:?}");
        let waits = texts(&result);
        for name in wanted {
            let why = waits.iter().find(|(path, _)| *path == format!("{at}{name}")).map(|(_, why)| why);
            assert!(why.is_some_and(|why| why.contains(&trees[0])), "{name}: {waits:?}");
        }
        assert_eq!(git(wt, &["rev-parse", "HEAD"]), before, "{wanted:?}");
        assert!(git(wt, &["log", "--oneline"]).contains("of the user"));
        assert_eq!(git(wt, &["status", "--short"]), "A  staged\n", "{wanted:?}");
        assert!(scene.ws().join("z").exists());
    }
}

#[test]
fn the_branch_of_a_working_tree_outside_waits() {
    let works: [&[&str]; 3] = [
        &["update-ref", "refs/heads/aside", "main"],
        &["update-ref", "-d", "refs/heads/aside"],
        // With its directory.
        &["update-ref", "-d", "refs/heads/dir/aside"],
    ];
    for (pack, work) in works.iter().flat_map(|work| [(false, work), (true, work)]) {
        let (scene, trees) = with_trees_outside();
        let wt = Path::new(&trees[1]);
        if work.last().is_some_and(|name| name.contains("/dir/")) {
            git(wt, &["checkout", "-q", "-b", "dir/aside"]);
        }
        if pack {
            git(&scene.ws(), &["pack-refs", "--all"]);
        }
        git(&scene.ws(), &["branch", "loose"]);
        let layer = run_git(&scene, &[work, &["pack-refs", "--all"], &["branch", "of-the-run"]]);
        let result = commit_by(&scene, &layer, &Rules::default());
        let waits = texts(&result);
        assert!(waits.iter().any(|(_, why)| why.contains(&trees[1])), "{pack} {work:?}: {waits:?}");
        assert!(result.conflicts.is_empty() && waits.iter().all(|(path, _)| path != ".git/refs/heads/of-the-run"));
        assert!(git(wt, &["log", "--oneline", "-1"]).contains("of the user"), "{pack} {work:?}");
        assert_eq!(git(wt, &["status", "--short"]), "A  staged\n", "{pack} {work:?}");
        for branch in ["loose", "of-the-run"] {
            assert!(!git(&scene.ws(), &["log", "--oneline", branch]).contains("fatal"), "{pack} {work:?} {branch}");
        }
        drop(layer);
        let left = accept(&scene, &Rules { accept_protected: true, ..Rules::default() });
        assert_eq!((parked(&left), left.conflicts.len()), (vec![], 0), "{left:?}");
    }
}

/// The twin: git's own work on all working trees and branches changes nothing of it.
#[test]
fn ordinary_work_beside_a_working_tree_outside_is_quiet() {
    let (scene, _) = with_trees_outside();
    let work: [&[&str]; 5] = [
        &["commit", "-q", "--allow-empty", "-m", "2"],
        &["pack-refs", "--all"],
        &["repack", "-q", "-a", "-d"],
        &["branch", "new"],
        &["fetch", "-q"],
    ];
    let result = commit_by(&scene, &run_git(&scene, &work), &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
    // With the working tree gone, the rest is not needed.
    let (scene, trees) = with_trees_outside();
    for tree in trees {
        fs::remove_dir_all(tree).unwrap();
    }
    let work: [&[&str]; 3] = [&["worktree", "prune"], &["branch", "-D", "aside"], &["gc", "-q"]];
    let result = commit_by(&scene, &run_git(&scene, &work), &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
}

/// Work of a run in a copy of the workspace.
type Work<'a> = &'a dyn Fn(&Path, &Path);

/// The working tree waits, as its `.git` is protected, and what git has of it stays with it.
#[test]
fn a_working_tree_inside_that_waits_keeps_its_git_directory() {
    let moved = |upper: &Path, ws: &Path| {
        fs::rename(upper.join("wt"), upper.join("wt2")).unwrap();
        fs::write(upper.join(".git/worktrees/wt/gitdir"), format!("{}/wt2/.git\n", ws.display())).unwrap();
    };
    let another = |upper: &Path, ws: &Path| {
        remove(&upper.join("wt"));
        remove(&upper.join(".git/worktrees/wt"));
        git(upper, &["worktree", "add", "-q", "o/wt", "mine"]);
        for (file, text) in [(".git/worktrees/wt/gitdir", "o/wt/.git\n"), ("o/wt/.git", ".git/worktrees/wt\n")] {
            let first = if file.ends_with("gitdir") { "" } else { "gitdir: " };
            fs::write(upper.join(file), format!("{first}{}/{text}", ws.display())).unwrap();
        }
    };
    let elsewhere = |upper: &Path, _: &Path| fs::write(upper.join(".git/worktrees/wt/gitdir"), "/nowhere\n").unwrap();
    let works: [Work; 3] = [&moved, &another, &elsewhere];
    for (number, work) in works.into_iter().enumerate() {
        let scene = cloned_scene();
        let (ws, wt) = (scene.ws(), scene.ws().join("wt"));
        git(&ws, &["worktree", "add", "-q", "--detach", wt.to_str().unwrap()]);
        git(&wt, &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        fs::write(wt.join("staged"), "staged").unwrap();
        git(&wt, &["add", "staged"]);
        let layer = run_with(&scene, |upper| {
            work(upper, &ws);
            fs::write(upper.join("z"), "z").unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty() && ws.join("z").exists(), "{number}: {result:?}");
        let waits = parked(&result);
        assert!(waits.iter().any(|path| path.starts_with(".git/worktrees/wt")), "{number}: {waits:?}");
        let rejected = Rules { accept_protected: true, except: vec!["wt".into()], ..Rules::default() };
        drop(layer);
        for rules in [named(&[".git/worktrees/wt"]), rejected] {
            if number < 2 {
                accept(&scene, &rules);
            }
            git(&ws, &["worktree", "prune"]);
            assert!(git(&wt, &["log", "--oneline", "-1"]).contains("of the user"), "{number}: {waits:?}");
            assert_eq!(git(&wt, &["status", "--short"]), "A  staged\n", "{number}");
        }
    }
    // The twin: work in the working tree comes.
    let scene = cloned_scene();
    git(&scene.ws(), &["worktree", "add", "-q", "--detach", scene.ws().join("wt").to_str().unwrap()]);
    let layer = run_with(&scene, |upper| {
        let id = git(upper, &["rev-parse", "HEAD"]);
        fs::write(upper.join(".git/worktrees/wt/ORIG_HEAD"), id).unwrap();
        fs::write(upper.join(".git/worktrees/wt/HEAD"), "ref: refs/heads/mine\n").unwrap();
        fs::write(upper.join("wt/f"), "of the run").unwrap();
    });
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{result:?}");
}
