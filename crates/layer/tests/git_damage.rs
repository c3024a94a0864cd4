//! Names of commits and indexes that do not read as git writes them wait, with all that is beside them: with the real git.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_layer::{LayerMode, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_with};
use std::fs;
use std::path::Path;

/// Rewrites each file below a directory as `sed -i` does.
fn rewrite(directory: &Path, change: &dyn Fn(&[u8]) -> Vec<u8>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rewrite(&path, change);
        } else if path.is_file() {
            let (old, new) = (fs::read(&path).unwrap(), change(&fs::read(&path).unwrap()));
            if old != new {
                fs::remove_file(&path).unwrap();
                fs::write(&path, new).unwrap();
            }
        }
    }
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(old) {
            out.extend(new);
            at += old.len();
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    out
}

type Change = (&'static str, fn(&[u8]) -> Vec<u8>);

/// A change that a person or an agent makes to all files.
const CHANGES: [Change; 5] = [
    ("s/a/b/g", |bytes| replaced(bytes, b"a", b"b")),
    ("s/foo/bar/g", |bytes| replaced(bytes, b"foo", b"bar")),
    ("s/[ab]//g", |bytes| bytes.iter().copied().filter(|byte| !b"ab".contains(byte)).collect()),
    ("s/$/\\r/", |bytes| replaced(bytes, b"\n", b"\r\n")),
    ("truncate", |_| Vec::new()),
];

/// The forms of repositories, and where they are in the workspace.
const FORMS: [(&str, &str); 5] =
    [("loose", ""), ("packed", ""), ("sha256", ""), ("bare", "b.git"), ("submodule", "sub")];

/// A repository with branches, a stash, and something that is staged.
fn scene(form: &str) -> Scene {
    let scene = Scene::new(LayerMode::Root, &[]);
    let ws = scene.ws();
    let format = if form == "sha256" { "--object-format=sha256" } else { "--object-format=sha1" };
    git(&ws, &["init", "-q", "-b", "main", format]);
    for number in 1..=20 {
        fs::write(ws.join(format!("foo{number:02}")), format!("foo {number}\n")).unwrap();
    }
    fs::write(ws.join("goo"), "foo\n").unwrap();
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "first"]);
    git(&ws, &["branch", "foo-branch"]);
    git(&ws, &["tag", "-m", "a tag", "v1"]);
    fs::write(ws.join("foo01"), "of the user\n").unwrap();
    git(&ws, &["stash", "-q"]);
    fs::write(ws.join("staged"), "staged\n").unwrap();
    match form {
        "packed" => drop(git(&ws, &["gc", "-q"])),
        "bare" => drop(git(&ws, &["clone", "-q", "--bare", ".", "b.git"])),
        "submodule" => {
            git(scene.dir.path(), &["clone", "-q", "--bare", ws.to_str().unwrap(), "other"]);
            let other = scene.path("other");
            git(&ws, &["-c", "protocol.file.allow=always", "submodule", "add", "-q", other.to_str().unwrap(), "sub"]);
            git(&ws, &["commit", "-q", "-m", "sub"]);
        }
        _ => {}
    }
    git(&ws, &["add", "staged"]);
    scene
}

/// Report of git about the history, the branches, the stash and the index of a repository.
fn said(repository: &Path) -> String {
    let works: [&[&str]; 6] = [
        &["log", "--oneline", "--all"],
        &["fsck", "--full", "--no-dangling"],
        &["branch", "-a", "-v"],
        &["stash", "list"],
        &["ls-files", "-s"],
        &["reflog", "--all"],
    ];
    works.iter().map(|work| git(repository, work)).collect()
}

fn is_bad(said: &str) -> bool {
    // A bare repository has no stash of a working tree.
    let said = said.replace("fatal: this operation must be run in a work tree", "");
    ["error", "fatal", "missing", "broken", "invalid"].iter().any(|word| said.contains(word))
}

#[test]
fn a_change_of_all_files_leaves_what_git_knows() {
    for (form, place) in FORMS {
        for (change, by) in CHANGES {
            // Without an index, no more is seen of it than another name of a branch.
            if (form, change) == ("bare", "s/foo/bar/g") {
                continue;
            }
            let scene = scene(form);
            let repository = scene.ws().join(place);
            let before = said(&repository);
            assert!(!is_bad(&before), "{form}: {before}");
            let layer = run_with(&scene, |upper| {
                rewrite(upper, &by);
                fs::write(upper.join("z"), "z").unwrap();
            });
            let result = commit_by(&scene, &layer, &Rules::default());
            assert!(result.conflicts.is_empty(), "{form} {change}: {result:?}");
            let after = said(&repository);
            assert!(before == after, "{form} {change}:\n{before}\nbecame\n{after}\n{:?}", parked(&result));
            assert!(scene.ws().join("z").exists(), "{form} {change}");
            drop(layer);
            // No accept by a name brings a part of it.
            for path in [".git/index", ".git/refs", ".git/logs"] {
                accept(&scene, &named(&[path]));
            }
            assert_eq!(before, said(&repository), "{form} {change}");
        }
    }
}

/// Work that changes names of commits or the index, and nothing of it waits.
type Work = &'static [&'static [&'static str]];

/// The twin: what git itself writes comes as before.
#[test]
fn what_git_writes_comes_unasked() {
    const COMMIT: &[&str] = &["commit", "-q", "--allow-empty", "-m", "of the run"];
    let works: [Work; 16] = [
        &[COMMIT],
        &[&["rm", "-q", "f"], &["stash", "-q"], &["stash", "drop", "-q"], COMMIT, &["rm", "-q", "f"], &["stash", "-q"]],
        &[&["checkout", "-q", "-b", "new"], COMMIT, &["rebase", "-q", "--onto", "old", "main"]],
        &[&["branch", "x"], &["pack-refs", "--all"], &["branch", "-D", "mine"]],
        &[COMMIT, &["gc", "-q", "--prune=now"]],
        &[&["gc", "-q"], COMMIT, &["repack", "-q", "-a", "-d", "-b"], &["multi-pack-index", "write"], COMMIT],
        &[&["branch", "-m", "mine", "renamed"], COMMIT],
        &[&["tag", "-m", "x", "v1"], &["tag", "v2"], &["pack-refs", "--all"], &["tag", "-d", "v1"]],
        &[&["update-index", "--split-index"], &["rm", "-q", "--cached", "f"], &["add", "f"], COMMIT],
        &[&["update-index", "--index-version", "4"], COMMIT],
        &[COMMIT, COMMIT, &["reset", "-q", "--hard", "HEAD~2"], &["reflog", "expire", "--expire=now", "--all"]],
        &[COMMIT, &["reset", "-q", "--hard", "HEAD~"], &["reflog", "delete", "--rewrite", "HEAD@{1}"]],
        &[&["notes", "add", "-m", "x"], &["fetch", "-q"], &["merge", "-q", "old"]],
        &[&["worktree", "add", "-q", "--no-checkout", "-b", "wt", "../of-the-run"], COMMIT],
        &[&["checkout", "-q", "--detach"], COMMIT, &["checkout", "-q", "-b", "from"]],
        &[&["-c", "index.skipHash=true", "rm", "-q", "--cached", "f"], COMMIT],
    ];
    for (pack, work) in works.iter().flat_map(|work| [(false, work), (true, work)]) {
        let scene = cloned_scene();
        if pack {
            git(&scene.ws(), &["gc", "-q"]);
        }
        let mut wanted = String::new();
        let layer = run_with(&scene, |upper| {
            for arguments in *work {
                let told = git(upper, arguments);
                assert!(!told.contains("fatal:") && !told.contains("error:"), "{arguments:?}: {told}");
            }
            wanted = said(upper);
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        let waits = parked(&result).into_iter().filter(|path| !path.contains("worktrees")).collect::<Vec<_>>();
        assert_eq!((waits, result.conflicts.len()), (vec![], 0), "{pack} {work:?}: {result:?}");
        let now = said(&scene.ws());
        assert_eq!(now, wanted, "{pack} {work:?}");
        if scene.path("of-the-run").exists() {
            fs::remove_dir_all(scene.path("of-the-run")).unwrap();
        }
    }
}

#[test]
fn repositories_of_all_forms_are_worked_in_unasked() {
    for (form, place) in FORMS {
        let scene = scene(form);
        let layer = run_with(&scene, |upper| {
            let at = upper.join(place);
            if form == "bare" {
                git(&at, &["update-ref", "refs/heads/new", "main"]);
                git(&at, &["gc", "-q"]);
                git(&at, &["branch", "-D", "foo-branch"]);
            } else {
                git(&at, &["commit", "-q", "--allow-empty", "-m", "of the run"]);
                git(&at, &["pack-refs", "--all"]);
                git(&at, &["branch", "new"]);
            }
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{form}: {result:?}");
        let now = said(&scene.ws().join(place));
        assert!(!is_bad(&now) && now.contains("new"), "{form}: {now}");
    }
}

/// A reason names the file, and the git directory comes as a whole or not at all.
#[test]
fn one_damaged_name_holds_the_others_of_its_repository() {
    let broken = |path: &str, text: &str| {
        let scene = cloned_scene();
        let before = said(&scene.ws());
        let layer = run_with(&scene, |upper| {
            git(upper, &["commit", "-q", "--allow-empty", "-m", "of the run"]);
            git(upper, &["branch", "new"]);
            let text = text.replace("MAIN", git(upper, &["rev-parse", "main"]).trim());
            fs::write(upper.join(path), text).unwrap();
            fs::write(upper.join("z"), "z").unwrap();
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        (scene, before, result)
    };
    let one = "1".repeat(40);
    for (path, text) in [
        (".git/refs/heads/new", "MAIN\r\n"),
        (".git/refs/heads/new", ""),
        (".git/refs/heads/new", &one),
        (".git/refs/heads/mine", "rff: refs/heads/main\n"),
        (".git/logs/HEAD", "x\n"),
        (".git/logs/refs/heads/mine", &format!("{one} {one} N <n@x> 1 +0000\tx\n")),
        (".git/packed-refs", ""),
        (".git/packed-refs", "# pack-refs with: sorted\nMAIN refs/heads/b\nMAIN refs/heads/a\n"),
        (".git/packed-refs", &format!("{one} refs/heads/a\n")),
        (".git/index", ""),
    ] {
        let (scene, before, result) = broken(path, text);
        assert_eq!(said(&scene.ws()), before, "{path} {text}: {result:?}");
        assert!(result.conflicts.is_empty() && scene.ws().join("z").exists(), "{path} {text}: {result:?}");
        let waits = parked(&result);
        assert!(waits.contains(&path.to_owned()) && waits.contains(&".git/refs/heads/main".to_owned()), "{waits:?}");
        let why = result.parked[0].protected.clone().unwrap_or_default();
        let is_missing = text.contains(&one);
        let advice = if is_missing { "git fetch" } else { "nexus changes accept .git" };
        assert!(why.contains(path) && why.contains(advice), "{path}: {why}");
        // Neither comes a part by its name, nor anything but the whole.
        let left = accept(&scene, &named(&[".git/refs/heads/main"]));
        assert!(parked(&left).contains(&".git/refs/heads/main".to_owned()), "{left:?}");
        assert_eq!(said(&scene.ws()), before, "{path} {text}");
        let whole = accept(&scene, &named(&[".git"]));
        assert_eq!(parked(&whole).is_empty(), !is_missing, "{path} {text}: {whole:?}");
        if is_missing {
            // No ref comes that leads to nothing.
            assert_eq!(said(&scene.ws()), before, "{path} {text}");
        }
    }
    // The twins: no line end, and a branch of the same commit.
    for (path, text) in [(".git/refs/heads/new", "MAIN"), (".git/refs/heads/other", "MAIN\n")] {
        let (_, _, result) = broken(path, text);
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{path}: {result:?}");
    }
}

/// A merge, a pick or a fetch of the user that is not finished.
#[test]
fn commits_that_are_being_merged_are_not_damaged() {
    let works: [(&str, &[&str]); 4] = [
        (".git/MERGE_HEAD", &["merge", "-q", "old"]),
        (".git/CHERRY_PICK_HEAD", &["cherry-pick", "old"]),
        (".git/REVERT_HEAD", &["revert", "--no-edit", "HEAD~"]),
        (".git/FETCH_HEAD", &["fetch", "-q", "origin", "old"]),
    ];
    let damages: [Change; 4] =
        [CHANGES[2], CHANGES[3], CHANGES[4], ("1", |_| format!("{}\n", "1".repeat(40)).into_bytes())];
    for (file, work) in works {
        for (change, by) in damages {
            // git empties it, too.
            if (file, change) == (".git/FETCH_HEAD", "truncate") {
                continue;
            }
            let (scene, before) = loop {
                let scene = cloned_scene();
                let ws = scene.ws();
                for (branch, name) in [("old", "of old"), ("main", "one"), ("main", "two")] {
                    git(&ws, &["checkout", "-q", branch]);
                    fs::write(ws.join("f"), name).unwrap();
                    git(&ws, &["commit", "-q", "-a", "-m", name]);
                }
                git(&ws, work);
                let bytes = fs::read(ws.join(file)).unwrap();
                // The name of a commit depends on the time, and one in 200 has neither an a nor a b.
                if change != CHANGES[2].0 || by(&bytes[..40]) != bytes[..40] {
                    let before = (bytes, said(&ws));
                    break (scene, before);
                }
            };
            let ws = scene.ws();
            let layer = run_with(&scene, |upper| {
                fs::remove_file(upper.join(file)).unwrap();
                fs::write(upper.join(file), by(&before.0)).unwrap();
                git(upper, &["branch", "new"]);
                fs::write(upper.join("z"), "z").unwrap();
            });
            let result = commit_by(&scene, &layer, &Rules::default());
            assert!(result.conflicts.is_empty() && ws.join("z").exists(), "{file} {change}: {result:?}");
            assert!((fs::read(ws.join(file)).unwrap(), said(&ws)) == before, "{file} {change}: {result:?}");
            assert!(parked(&result).contains(&file.to_owned()), "{file} {change}: {result:?}");
        }
    }
}

/// The twin: what git writes in a merge, a pick, a fetch and a rebase comes, and so does what is left of a commit that is gone.
#[test]
fn merges_and_picks_of_a_run_come_unasked() {
    let works: [Work; 5] = [
        &[&["merge", "-q", "topic"], &["merge", "--no-commit", "--no-ff", "other"]],
        &[&["cherry-pick", "-n", "other"], &["commit", "-q", "-m", "picked"]],
        &[&["fetch", "-q"], &["fetch", "-q", ".", "other"], &["fetch", "-q", "--no-tags", "origin", "old", "topic"]],
        &[&["rebase", "-q", "other"], &["reset", "-q", "--hard", "HEAD~"], &["gc", "-q", "--prune=now"]],
        &[
            &["commit", "-q", "--allow-empty", "-m", "x"],
            &["reset", "-q", "--hard", "HEAD~"],
            &["reflog", "expire", "--expire=now", "--all"],
            &["gc", "-q", "--prune=now"],
        ],
    ];
    for work in works {
        let scene = cloned_scene();
        let ws = scene.ws();
        git(&ws, &["checkout", "-q", "-b", "other"]);
        fs::write(ws.join("g"), "other").unwrap();
        git(&ws, &["add", "g"]);
        git(&ws, &["commit", "-q", "-m", "other"]);
        git(&ws, &["checkout", "-q", "main"]);
        let layer = run_with(&scene, |upper| work.iter().for_each(|arguments| drop(git(upper, arguments))));
        let result = commit_by(&scene, &layer, &Rules::default());
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{work:?}: {result:?}");
    }
}
