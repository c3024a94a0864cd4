//! Files that git on the host acts on, and files that git itself writes in a run: with the real git.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Scene, wait_for_tick};
use nexus_layer::{Layer, LayerMode, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_git, waits_after};
use std::path::Path;
use std::process::Command;

/// A repository with two commits, and a layer whose upper directory has the run's `.git/config`.
fn git_scene(config: &[&[&str]]) -> (Scene, Layer) {
    let scene = Scene::new(LayerMode::Root, &[]);
    git(&scene.ws(), &["init", "-q", "-b", "main"]);
    for text in ["1", "2"] {
        std::fs::write(scene.ws().join("f"), text).unwrap();
        git(&scene.ws(), &["add", "."]);
        git(&scene.ws(), &["commit", "-q", "-m", text]);
    }
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    let upper = layer.upper().join(".git");
    std::fs::create_dir(&upper).unwrap();
    std::fs::copy(scene.ws().join(".git/config"), upper.join("config")).unwrap();
    let file = upper.join("config");
    for arguments in config {
        git(&scene.ws(), &[&["config", "--file", file.to_str().unwrap()][..], arguments].concat());
    }
    (scene, layer)
}

/// Commits the layer: the setting waits and git on the host does not act on it. Accepted, git does: the test can fail.
fn git_acts_only_after_an_accept(config: &[&[&str]], act: impl Fn(&Path)) {
    let (scene, layer) = git_scene(config);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [".git/config"], "{config:?}");
    drop(layer);
    act(&scene.ws());
    assert!(!scene.ws().join("PWNED").exists(), "{config:?}");
    std::fs::remove_dir_all(scene.path("layers/run")).unwrap();
    let (scene, layer) = git_scene(config);
    commit_by(&scene, &layer, &Rules { accept_protected: true, ..Rules::default() });
    act(&scene.ws());
    assert!(scene.ws().join("PWNED").exists(), "{config:?}: git did not act on it");
}

#[test]
fn git_gc_runs_no_hook_that_a_run_set() {
    let old = |ws: &Path| {
        git(ws, &["config", "gc.pruneExpire", "1.day.ago"]);
        for text in ["a", "b"] {
            std::fs::write(ws.join("loose"), text).unwrap();
            git(ws, &["hash-object", "-w", "loose"]);
        }
        Command::new("find")
            .args([".git/objects", "-type", "f", "-exec", "touch", "-d", "2 months ago", "{}", "+"])
            .current_dir(ws)
            .status()
            .unwrap();
        git(ws, &["gc", "--quiet"]);
    };
    git_acts_only_after_an_accept(&[&["gc.recentObjectsHook", "touch PWNED; true"]], old);
}

#[test]
fn git_runs_no_alias_with_options_that_a_run_set() {
    git_acts_only_after_an_accept(&[&["alias.rb", "rebase --exec 'touch PWNED' HEAD~1"]], |ws| {
        git(ws, &["rb"]);
    });
    git_acts_only_after_an_accept(&[&["alias.co", "fetch --upload-pack=touch${IFS}PWNED;false ."]], |ws| {
        git(ws, &["co"]);
    });
}

/// git believes the names of the index: `git checkout .` would write them, a hook among them.
#[test]
fn git_writes_no_hook_from_an_index_that_a_run_left() {
    for version in ["2", "4"] {
        let (scene, layer) = git_scene(&[]);
        let copy = scene.path("copy");
        git(scene.dir.path(), &["clone", "-q", scene.ws().to_str().unwrap(), copy.to_str().unwrap()]);
        git(&copy, &["config", "index.version", version]);
        std::fs::create_dir_all(copy.join("Xgit/hooks")).unwrap();
        std::fs::write(copy.join("Xgit/hooks/post-checkout"), "#!/bin/sh\ntouch PWNED\n").unwrap();
        std::fs::write(copy.join("plain"), "x").unwrap();
        git(&copy, &["add", "--chmod=+x", "Xgit/hooks/post-checkout"]);
        git(&copy, &["add", "plain"]);
        git(&copy, &["update-index", "--index-version", version]);
        let mut index = std::fs::read(copy.join(".git/index")).unwrap();
        let name = b"Xgit/hooks/post-checkout";
        let at = index.windows(name.len()).position(|part| part == name).unwrap();
        index[at] = b'.';
        // As with `index.skipHash`: one that does not fit would keep more back than the index.
        let end = index.len() - 20;
        index[end..].fill(0);
        let upper = layer.upper().join(".git");
        std::fs::write(upper.join("index"), &index).unwrap();
        new_objects(&copy.join(".git/objects"), &scene.ws().join(".git/objects"), &upper.join("objects"));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!(parked(&result), [".git/index"], "version {version}: {result:?}");
        // `git checkout` would change the index, which the twin below replaces.
        assert_eq!(git(&scene.ws(), &["ls-files"]), "f\n", "version {version}");
        drop(layer);
        // The twin: accepted, git does write it, so that the file would have acted.
        let accepted = accept(&scene, &named(&[".git/index"]));
        assert!(accepted.conflicts.is_empty(), "{accepted:?}");
        let told = git(&scene.ws(), &["checkout", "."]);
        assert!(scene.ws().join(".git/hooks/post-checkout").exists(), "version {version}: {told}");
    }
}

/// Copies the objects that `old` does not have.
fn new_objects(from: &Path, old: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, old, to) = (entry.path(), old.join(entry.file_name()), to.join(entry.file_name()));
        if from.is_dir() {
            new_objects(&from, &old, &to);
        } else if !old.exists() {
            std::fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn git_resumes_no_rebase_that_a_run_left() {
    let scene = Scene::new(LayerMode::Root, &[]);
    git(&scene.ws(), &["init", "-q", "-b", "main"]);
    for text in ["1", "2"] {
        std::fs::write(scene.ws().join("f"), text).unwrap();
        git(&scene.ws(), &["add", "."]);
        git(&scene.ws(), &["commit", "-q", "-m", text]);
    }
    // What the run leaves: git itself writes it in a copy, and stops at the first command.
    let copy = scene.path("copy");
    assert!(Command::new("cp").arg("-a").arg(scene.ws()).arg(&copy).status().unwrap().success());
    git(&copy, &["-c", "sequence.editor=printf 'break\\nexec touch PWNED\\n' >", "rebase", "-i", "HEAD~1"]);
    assert!(copy.join(".git/rebase-merge/git-rebase-todo").exists());
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    std::fs::create_dir(layer.upper().join(".git")).unwrap();
    for name in [".git/rebase-merge", ".git/HEAD", ".git/index", "f"] {
        let target = layer.upper().join(name);
        assert!(Command::new("cp").arg("-aT").arg(copy.join(name)).arg(target).status().unwrap().success());
    }
    let result = commit_by(&scene, &layer, &Rules::default());
    assert!(parked(&result).iter().all(|path| path.starts_with(".git/rebase-merge")), "{result:?}");
    drop(layer);
    assert!(!scene.ws().join(".git/rebase-merge").exists());
    git(&scene.ws(), &["rebase", "--continue"]);
    assert!(!scene.ws().join("PWNED").exists());
    // Accepted by its name, git runs it: the test can fail.
    assert_eq!(parked(&accept(&scene, &named(&[".git/rebase-merge"]))), [""; 0]);
    git(&scene.ws(), &["rebase", "--continue"]);
    assert!(scene.ws().join("PWNED").exists());
}

#[test]
fn what_git_itself_writes_in_ordinary_work_commits_unasked() {
    let scene = cloned_scene();
    let layer = run_git(
        &scene,
        &[
            &["config", "user.name", "A B"],
            &["config", "pull.rebase", "true"],
            &["checkout", "-q", "-b", "feature"],
            &["commit", "-q", "--allow-empty", "-m", "2"],
            &["push", "-q", "-u", "origin", "feature"],
            &["checkout", "-q", "--track", "origin/topic"],
            &["pull", "-q", "--rebase"],
            &["branch", "-q", "-D", "old"],
            &["branch", "-q", "-d", "mine"],
            &["branch", "unpushed"],
            &["branch", "-m", "unpushed", "renamed"],
            &["fetch", "-q", "--prune"],
            &["rebase", "-q", "feature"],
            &["tag", "-a", "-m", "t", "v1"],
            &["stash"],
            &["worktree", "add", "-q", "../tree", "-b", "aside"],
            &["worktree", "remove", "../tree"],
            &["gc", "-q"],
        ],
    );
    let before = git(&layer.upper(), &["config", "--list", "--local"]);
    let refs = git(&layer.upper(), &["show-ref"]);
    assert!(before.contains("branch.topic.remote=origin") && before.contains("branch.feature.merge"), "{before}");
    assert!(!before.contains("branch.old") && refs.contains("refs/heads/renamed"), "{before} {refs}");
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{:?}", result.parked);
    assert_eq!(git(&scene.ws(), &["config", "--list", "--local"]), before);
    assert_eq!(git(&scene.ws(), &["show-ref"]), refs);
}

/// In a workspace that is in no repository.
#[test]
fn repositories_that_git_makes_alone_commit_unasked() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let layer = run_git(
        &scene,
        &[
            &["init", "-q", "nested"],
            &["init", "-q", "-b", "main", "project"],
            &["-C", "project", "remote", "add", "origin", "https://git.example.org/a.git"],
            &["-C", "project", "commit", "-q", "--allow-empty", "-m", "1"],
            &["init", "-q", "--bare", "bare.git"],
            &["init", "-q", "--object-format=sha256", "sha256"],
            &["clone", "-q", "project", "copy"],
            &["clone", "-q", "--bare", "project", "copy.git"],
        ],
    );
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{:?}", result.parked);
    assert!(git(&scene.ws().join("project"), &["remote", "-v"]).contains("git.example.org"));
    for directory in ["copy", "copy.git", "sha256", "nested"] {
        let status = git(&scene.ws().join(directory), &["rev-parse", "--git-dir"]);
        assert!(!status.contains("fatal"), "{directory}: {status}");
    }
}

/// Each would lead the user's next `git push`, `git fetch` or `git checkout` elsewhere.
#[test]
fn what_leads_a_push_or_a_fetch_elsewhere_waits() {
    for work in [
        &[&["config", "push.default", "upstream"][..], &["config", "branch.mine.remote", "origin"]][..],
        &[&["config", "branch.mine.merge", "refs/heads/main"]],
        &[&["branch", "-q", "topic2", "origin/topic"]],
        &[&["config", "fetch.pruneTags", "true"]],
        &[&["config", "remote.origin.prune", "true"]],
        &[&["remote", "add", "fork", "https://git.example.org/a.git"]],
        &[&["branch", "-m", "old", "other"]],
        &[&["config", "alias.st", "status"]],
        &[&["config", "submodule.sub.url", "https://git.example.org/a.git"]],
    ] {
        assert_eq!(waits_after(work), [".git/config"], "{work:?}");
    }
    let symbolic = waits_after(&[&["symbolic-ref", "refs/heads/mine", "refs/heads/main"]]);
    assert_eq!(symbolic, [".git/refs/heads/mine"]);
    let set_head: &[&[&str]] = &[&["remote", "set-head", "origin", "topic"]];
    assert_eq!(waits_after(set_head), [".git/refs/remotes/origin/HEAD"], "a push may go to upstreams");
    let scene = cloned_scene();
    let rules = Rules { pushes_to_upstream: false, ..Rules::default() };
    assert_eq!(parked(&commit_by(&scene, &run_git(&scene, set_head), &rules)), [""; 0]);
    // One that the repository has, which a new branch would get as its upstream.
    let scene = cloned_scene();
    git(&scene.ws(), &["remote", "set-head", "origin", "main"]);
    let result = commit_by(&scene, &run_git(&scene, set_head), &rules);
    assert_eq!(parked(&result), [".git/refs/remotes/origin/HEAD"]);
    // The first remote of a repository that was there.
    let (scene, layer) = git_scene(&[&["remote.origin.url", "https://git.example.org/a.git"]]);
    assert_eq!(parked(&commit_by(&scene, &layer, &Rules::default())), [".git/config"]);
}

/// Settings of git for a branch that begins at one of a remote, and settings that look like them.
#[test]
fn an_upstream_of_the_remote_commits_where_no_push_goes_by_it() {
    let work: [&[&[&str]]; 4] = [
        &[&["checkout", "-q", "-b", "topic2", "origin/topic"]],
        &[&["switch", "-q", "-c", "topic2", "--track", "origin/topic"], &["pack-refs", "--all"]],
        &[&["branch", "-m", "old", "other"]],
        &[&["branch", "-q", "-u", "origin/old", "main"]],
    ];
    let bad: [&[&[&str]]; 4] = [
        &[&["checkout", "-q", "-b", "topic2"], &["config", "branch.topic2.merge", "refs/heads/topic"]],
        &[&["branch", "-q", "--track", "topic2", "main"]],
        &[&["branch", "-m", "old", "other"], &["config", "branch.other.merge", "refs/heads/nothing"]],
        &[&["branch", "-q", "-u", "origin/old", "main"], &["config", "branch.main.pushRemote", "origin"]],
    ];
    let waits = |work: &[&[&str]], pushes_to_upstream| {
        let scene = cloned_scene();
        let rules = Rules { pushes_to_upstream, ..Rules::default() };
        parked(&commit_by(&scene, &run_git(&scene, work), &rules))
    };
    for (good, bad) in work.into_iter().zip(bad) {
        assert_eq!(waits(good, false), [""; 0], "{good:?}");
        assert_eq!(waits(good, true), [".git/config"], "{good:?}");
        assert_eq!(waits(bad, false), [".git/config"], "{bad:?}");
    }
}

/// In such a directory the user's next commit and push would be those of the new repository.
#[test]
fn a_repository_that_git_makes_in_another_one_waits() {
    let origin = ["-C", "src", "remote", "add", "origin", "https://git.example.org/a.git"];
    for (work, place) in [
        (&[&["init", "-q", "src"][..], &origin[..]][..], "src/.git"),
        (&[&["init", "-q", "lib"]], "lib"),
        (&[&["clone", "-q", ".", "copy"]], "copy"),
        (&[&["init", "-q", "--object-format=sha256", "lib/sha256"]], "lib/sha256"),
        (&[&["init", "-q", "--bare", "bare.git"]], "bare.git"),
        (&[&["clone", "-q", "--bare", ".", "copy.git"]], "copy.git"),
        (&[&["init", "-q", "--bare", ".git/worktrees/wt"]], ".git/worktrees/wt"),
    ] {
        let waits = waits_after(work);
        assert_eq!(waits.first().map(String::as_str), Some(place), "{waits:?}");
        assert!(waits.iter().all(|path| path.starts_with(place)), "{waits:?}");
    }
    // The twin: what `git worktree add` writes into the git directory comes, and what makes the working tree waits.
    assert_eq!(waits_after(&[&["worktree", "add", "-q", "wt", "-b", "aside"]])[..2], ["wt", "wt/.git"]);
    for (place, waits) in [(".git", true), ("other", false)] {
        let scene = Scene::new(LayerMode::Root, &[]);
        std::fs::create_dir(scene.ws().join("src")).unwrap();
        std::fs::create_dir(scene.dir.path().join(place)).unwrap();
        for at in [".", "src"] {
            let layer = run_git(&scene, &[&["init", "-q", at]]);
            let result = commit_by(&scene, &layer, &Rules::default());
            assert_eq!(!result.parked.is_empty(), waits || at == "src", "{place} {at}: {result:?}");
            assert_eq!(scene.ws().join(at).join(".git").exists(), !(waits || at == "src"), "{place} {at}");
            // Accepted, it comes.
            drop(layer);
            let path = if at == "." { ".git" } else { "src/.git" };
            if waits || at == "src" {
                let left = parked(&accept(&scene, &named(&[path])));
                assert_eq!(left, [""; 0], "{place} {at}");
            }
            assert!(scene.ws().join(path).join("HEAD").exists(), "{place} {at}");
            if scene.path("layers/run").exists() {
                std::fs::remove_dir_all(scene.path("layers/run")).unwrap();
            }
        }
    }
}

/// The next run and the user find no files there with which git would work on the outer repository.
#[test]
fn no_run_works_on_the_outer_repository_by_mistake() {
    let add = ["worktree", "add", "-q", "trees/fix", "-b", "fix"];
    for (work, top) in [(&[&["clone", "-q", ".", "deps/one"][..]][..], "deps/one"), (&[&add[..]], "trees/fix")] {
        let scene = cloned_scene();
        let layer = run_git(&scene, work);
        // A run has the workspace at its own place.
        let file = layer.upper().join(top).join(".git");
        if file.is_file() {
            let (upper, ws) = (layer.upper(), scene.ws());
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replace(upper.to_str().unwrap(), ws.to_str().unwrap())).unwrap();
        }
        drop(commit_by(&scene, &layer, &Rules::default()));
        drop(layer);
        std::fs::write(scene.ws().join("f"), "an edit of the user").unwrap();
        assert!(!scene.ws().join(top).exists(), "{top}");
        // Accepted, git works there on the repository itself.
        accept(&scene, &named(&[top]));
        let found = git(&scene.ws().join(top), &["rev-parse", "--show-toplevel"]);
        assert!(found.trim().ends_with(top), "{found}");
        git(&scene.ws().join(top), &["reset", "-q", "--hard"]);
        assert_eq!(std::fs::read_to_string(scene.ws().join("f")).unwrap(), "an edit of the user");
        assert_eq!(git(&scene.ws().join(top), &["status", "--short"]), "", "{top}");
    }
}

/// The refs lead to commits whose parents are not there, and only `shallow` says so.
#[test]
fn what_needs_a_shallow_history_waits_with_it() {
    let scene = cloned_scene();
    let (ws, other) = (scene.ws(), scene.path("other"));
    let origin = format!("file://{}", scene.path("origin.git").display());
    git(scene.dir.path(), &["clone", "-q", &origin, "other"]);
    for text in ["2", "3"] {
        std::fs::write(other.join("f"), text).unwrap();
        git(&other, &["commit", "-q", "-a", "-m", text]);
    }
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    git(&ws, &["remote", "set-url", "origin", &origin]);
    let fsck = || git(&ws, &["log", "--oneline", "--all"]) + &git(&ws, &["fsck", "--connectivity-only"]);
    let fetch = |depth: &[&str]| run_git(&scene, &[&[&["fetch", "-q", "origin"], depth].concat()]);
    let result = commit_by(&scene, &fetch(&["--depth", "1"]), &Rules::default());
    let waits = parked(&result);
    assert!(waits.contains(&".git/shallow".to_owned()), "{waits:?}");
    assert!(waits.contains(&".git/refs/remotes/origin/main".to_owned()), "{waits:?}");
    assert!(!ws.join(".git/shallow").exists());
    assert!(!fsck().contains("error") && !fsck().contains("fatal") && !fsck().contains("missing"), "{}", fsck());
    // Accepted by its name, `shallow` comes, and then nothing keeps the others.
    accept(&scene, &named(&[".git/shallow"]));
    let left = accept(&scene, &Rules::default());
    assert_eq!(parked(&left), [""; 0]);
    assert!(git(&ws, &["rev-list", "--count", "origin/main"]).trim() == "1", "{}", fsck());
    assert!(!fsck().contains("error") && !fsck().contains("missing"), "{}", fsck());
    // A fetch that cuts nothing off, in a repository that is shallow already.
    std::fs::write(other.join("f"), "4").unwrap();
    git(&other, &["commit", "-q", "-a", "-m", "4"]);
    git(&other, &["push", "-q", "origin", "HEAD:main"]);
    let result = commit_by(&scene, &fetch(&[]), &Rules::default());
    assert_eq!(parked(&result), [""; 0]);
    assert!(!fsck().contains("error") && !fsck().contains("missing"), "{}", fsck());
}

/// The objects that a reference of the host needs outlive every deletion of a run.
#[test]
fn a_run_deletes_no_objects_of_git() {
    const GC: [&[&str]; 2] = [&["reflog", "expire", "--expire=all", "--all"], &["gc", "-q", "--prune=now"]];
    // What names the old commit waits, or is made on the host meanwhile.
    let cases: [(&[&[&str]], bool); 2] =
        [(&[&["symbolic-ref", "refs/heads/work", "refs/heads/main"]], false), (&[&["branch", "-D", "work"]], true)];
    for (work, kept_by_the_host) in cases {
        let scene = cloned_scene();
        let ws = scene.ws();
        git(&ws, &["checkout", "-q", "-b", "work"]);
        git(&ws, &["commit", "-q", "--allow-empty", "-m", "unpushed"]);
        git(&ws, &["checkout", "-q", "main"]);
        let commit = git(&ws, &["rev-parse", "work"]).trim().to_owned();
        let layer = run_git(&scene, &[work, &GC[..]].concat());
        if kept_by_the_host {
            git(&ws, &["branch", "keep", "work"]);
        }
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(result.conflicts.is_empty(), "{work:?}: {result:?}");
        let of = if kept_by_the_host { "keep" } else { "work" };
        assert_eq!(git(&ws, &["rev-parse", of]).trim(), commit, "{work:?}");
        let told = git(&ws, &["fsck", "--full"]);
        assert!(git(&ws, &["log", "--oneline", of]).contains("unpushed"), "{work:?}: {told}");
        assert!(!told.contains("missing") && !told.contains("error") && !told.contains("broken"), "{work:?}: {told}");
        // The next collection on the host takes what nothing names.
        git(&ws, &["gc", "-q", "--prune=now"]);
        assert!(git(&ws, &["log", "--oneline", of]).contains("unpushed"));
    }
}

/// The twin: what `git gc` does is committed otherwise, and nothing waits.
#[test]
fn a_collection_of_git_in_a_run_leaves_a_whole_repository() {
    let scene = cloned_scene();
    let layer =
        run_git(&scene, &[&["repack", "-q", "-a", "-d"], &["gc", "-q", "--prune=now"], &["pack-refs", "--all"]]);
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0));
    assert!(!scene.path("layers/run").exists(), "nothing of it waits");
    // The pack of the run has only what the workspace has already.
    assert!(scene.ws().join(".git/packed-refs").exists(), "the references have come");
    let packs = std::fs::read_dir(scene.ws().join(".git/objects/pack")).unwrap().count();
    assert_eq!(packs, 0);
    let told = git(&scene.ws(), &["fsck", "--full"]);
    assert!(!told.contains("missing") && !told.contains("error"), "{told}");
}

/// With such a flag, neither `git status` nor `git diff` shows that the file changed.
#[test]
fn an_index_that_hides_a_file_waits() {
    for flag in ["--skip-worktree", "--assume-unchanged"] {
        let hide = ["update-index", flag, "src/f"];
        assert_eq!(waits_after(&[&hide]), [".git/index"], "{flag}");
        assert_eq!(waits_after(&[&["update-index", "--split-index"], &hide])[0], ".git/index", "{flag}");
        // The twin: what the user hid stays hidden.
        let scene = cloned_scene();
        git(&scene.ws(), &hide);
        let work: [&[&str]; 2] = [&["commit", "-q", "--allow-empty", "-m", "2"], &["add", "-A"]];
        let result = commit_by(&scene, &run_git(&scene, &work), &Rules::default());
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{flag}");
    }
    assert_eq!(waits_after(&[&["rm", "-q", "--cached", "f"], &["add", "--intent-to-add", "f"]]), [""; 0]);
}

/// git removes the files of the refs that it packs, so the branch must come although the replaced object waits.
#[test]
fn packed_refs_come_without_replaced_objects() {
    let scene = Scene::new(LayerMode::Root, &[]);
    git(&scene.ws(), &["init", "-q", "-b", "main"]);
    for text in ["1", "2"] {
        std::fs::write(scene.ws().join("f"), text).unwrap();
        git(&scene.ws(), &["add", "."]);
        git(&scene.ws(), &["commit", "-q", "-m", text]);
    }
    let log = git(&scene.ws(), &["log", "--format=%H"]);
    let (last, first) = log.trim().split_once('\n').unwrap();
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[]);
    let upper = layer.upper().join(".git");
    std::fs::create_dir_all(&upper).unwrap();
    let packed =
        format!("# pack-refs with: peeled fully-peeled sorted \n{last} refs/heads/main\n{first} refs/replace/{last}\n");
    std::fs::write(upper.join("packed-refs"), packed).unwrap();
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(parked(&result), [".git/packed-refs"]);
    drop(layer);
    std::fs::remove_file(scene.ws().join(".git/refs/heads/main")).unwrap();
    assert_eq!(git(&scene.ws(), &["log", "--format=%H"]), log);
    // Accepted, the object is replaced: the test can fail.
    accept(&scene, &named(&[".git/packed-refs"]));
    assert_ne!(git(&scene.ws(), &["log", "--format=%H"]), log);
}

/// Version control acts on these on its own, or shows another history by them.
#[test]
fn configuration_of_other_version_control_waits() {
    let names = [
        ".hg/hgrc",
        ".hg/hgrc-not-shared",
        "sub/.hg/hgrc",
        ".jj/repo/config.toml",
        ".sl/config",
        "ansible.cfg",
        ".git/refs/replace/0123456789012345678901234567890123456789",
        ".git/rr-cache/0123456789012345678901234567890123456789/postimage",
        ".git/info/grafts",
    ];
    let beside = [
        ".hg/store/data",
        "hgrc",
        ".jj/working_copy/type",
        ".sl/store/x",
        "ansible.cfg.md",
        "rr-cache/x",
        "refs/replace/x",
    ];
    let (scene, layer) = git_scene(&[]);
    for name in names.iter().chain(&beside) {
        let path = layer.upper().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }
    let result = commit_by(&scene, &layer, &Rules::default());
    assert_eq!(result.conflicts, []);
    for name in names {
        assert!(!scene.ws().join(name).exists(), "{name} came unasked");
        assert!(parked(&result).iter().any(|path| name.starts_with(path.as_str())), "{name} does not wait");
    }
    for name in beside {
        assert!(scene.ws().join(name).exists(), "{name} waits");
    }
}
