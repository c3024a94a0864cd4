//! Further working trees that a run makes of the user's own repository: with the real git.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::Scene;
use nexus_facility::protected::Class;
use nexus_facility::{Committed, Host, Reach, Rules};
use repository::{accept, cloned_scene, commit_by, git, named, parked, run_with};
use std::fs;
use std::path::Path;

/// A clone that has files with protected names.
fn scene() -> Scene {
    let scene = cloned_scene();
    let ws = scene.ws();
    fs::create_dir(ws.join(".vscode")).unwrap();
    for name in ["AGENTS.md", ".gitattributes", ".vscode/tasks.json"] {
        fs::write(ws.join(name), "").unwrap();
    }
    git(&ws, &["add", "."]);
    git(&ws, &["commit", "-q", "-m", "protected"]);
    scene
}

/// Writes the paths of the workspace into the files of a working tree that was made in a copy of it.
fn at_home(scene: &Scene, upper: &Path, tree: &str) {
    let admin = Path::new(".git/worktrees").join(Path::new(tree).file_name().unwrap()).join("gitdir");
    for file in [upper.join(tree).join(".git"), upper.join(admin)] {
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(upper.to_str().unwrap(), scene.ws().to_str().unwrap())).unwrap();
    }
}

/// Adds `trees/fix` in a run, and does something more.
fn add(scene: &Scene, more: impl FnOnce(&Path)) -> Committed {
    let layer = run_with(scene, |upper| {
        git(upper, &["worktree", "add", "-q", "trees/fix", "-b", "fix"]);
        more(upper);
        at_home(scene, upper, "trees/fix");
    });
    commit_by(scene, &layer, &Rules::default())
}

#[test]
fn a_further_working_tree_of_the_repository_comes() {
    for work in [&[][..], &["commit", "-q", "--allow-empty", "-m", "of the run"]] {
        let scene = scene();
        let result = add(&scene, |upper| {
            if !work.is_empty() {
                git(&upper.join("trees/fix"), work);
            }
        });
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{work:?}");
        let tree = scene.ws().join("trees/fix");
        assert_eq!(git(&tree, &["status", "--short"]), "", "{work:?}");
        git(&tree, &["commit", "-q", "--allow-empty", "-m", "of the user"]);
        assert!(git(&scene.ws(), &["log", "--oneline", "fix"]).contains("of the user"));
        assert!(!git(&scene.ws(), &["log", "--oneline", "main"]).contains("of the user"));
        // The next run removes it: git and the files go together.
        let layer = run_with(&scene, |upper| {
            fs::remove_dir_all(upper.join("trees")).unwrap();
            fs::remove_dir_all(upper.join(".git/worktrees")).unwrap();
        });
        let waits = parked(&commit_by(&scene, &layer, &Rules::default()));
        assert_eq!(waits, [".git/worktrees", "trees"]);
    }
}

/// Each would lead the user's commits elsewhere, or bring what needs an accept in the first working tree.
#[test]
fn a_further_working_tree_with_anything_odd_waits_as_a_whole() {
    type Odd<'a> = (&'a str, Box<dyn Fn(&Path)>);
    let admin = |name: &'static str, text: &'static str| -> Box<dyn Fn(&Path)> {
        Box::new(move |upper| {
            let file = upper.join(".git/worktrees/fix").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        })
    };
    let tree = |name: &'static str, text: &'static str| -> Box<dyn Fn(&Path)> {
        Box::new(move |upper| fs::write(upper.join("trees/fix").join(name), text).unwrap())
    };
    let all: Vec<Odd<'_>> = vec![
        ("settings of its own", admin("config.worktree", "[core]\n")),
        ("hooks of its own", admin("hooks/pre-commit", "#!/bin/sh\n")),
        ("another common directory", admin("commondir", "../../../other\n")),
        ("another place", admin("gitdir", "/elsewhere/.git\n")),
        ("refs of its own", admin("refs/bisect/bad", "x\n")),
        ("the branch of the user", admin("HEAD", "ref: refs/heads/main\n")),
        ("no branch", admin("HEAD", "ref: refs/tags/v1\n")),
        ("other instructions", tree("AGENTS.md", "do this")),
        ("new instructions", tree("src/CLAUDE.md", "do this")),
        ("a task that is new there", tree(".vscode/launch.json", "{}")),
        (
            "a file that is hidden",
            Box::new(|upper| {
                git(&upper.join("trees/fix"), &["update-index", "--skip-worktree", "f"]);
            }),
        ),
        (
            "a tracked file at the place",
            Box::new(|upper| {
                git(
                    upper,
                    &[
                        "update-index",
                        "--add",
                        "--cacheinfo",
                        "100644,e69de29bb2d1d6434b8b29ae775ad8c2e48c5391,trees/fix/f",
                    ],
                );
            }),
        ),
    ];
    for (what, odd) in all {
        let scene = scene();
        let result = add(&scene, odd);
        let waits = parked(&result);
        assert!(
            waits.contains(&"trees/fix".to_owned()) && waits.contains(&"trees/fix/.git".to_owned()),
            "{what}: {waits:?}"
        );
        assert!(!scene.ws().join("trees/fix").exists(), "{what}");
    }
    // Accepted by its name, it comes.
    let scene = scene();
    add(&scene, |upper| fs::write(upper.join("trees/fix/AGENTS.md"), "do this").unwrap());
    accept(&scene, &named(&["trees/fix"]));
    assert!(git(&scene.ws().join("trees/fix"), &["status"]).contains("On branch fix"));
}

/// git starts them in the new working tree, too.
#[test]
fn hooks_of_a_new_working_tree_are_those_of_the_first_one() {
    for text in ["#!/bin/sh\n", "#!/bin/sh\nevil\n"] {
        let scene = scene();
        let ws = scene.ws();
        fs::create_dir(ws.join("hk")).unwrap();
        fs::write(ws.join("hk/pre-commit"), "#!/bin/sh\n").unwrap();
        git(&ws, &["add", "."]);
        git(&ws, &["commit", "-q", "-m", "hooks"]);
        git(&ws, &["config", "core.hooksPath", "hk"]);
        let at = fs::canonicalize(&ws).unwrap();
        let rules = || {
            let host = Host::default();
            Rules::default().for_workspace(&scene.workspace(), &at, &host, Reach::COMMIT, &[b"trees/fix".to_vec()])
        };
        let layer = run_with(&scene, |upper| {
            git(upper, &["worktree", "add", "-q", "trees/fix", "-b", "fix"]);
            fs::write(upper.join("trees/fix/hk/pre-commit"), text).unwrap();
            at_home(&scene, upper, "trees/fix");
        });
        let result = commit_by(&scene, &layer, &rules().unwrap());
        assert_eq!(parked(&result).contains(&"trees/fix".to_owned()), text.contains("evil"), "{result:?}");
        // The next run finds what git starts there.
        let is_protected = rules().unwrap().class(b"trees/fix/hk/pre-commit") != Class::Plain;
        assert_eq!(is_protected, !text.contains("evil"));
    }
}

/// A repository is nearer than the one that the working tree is of.
#[test]
fn a_working_tree_of_another_repository_waits() {
    let scene = scene();
    let ws = scene.ws();
    for name in ["inner", "beside"] {
        git(&ws, &["clone", "-q", "../origin.git", name]);
    }
    for (of, place) in [(".", "inner/fix"), ("beside", "trees/fix")] {
        let layer = run_with(&scene, |upper| {
            let path = upper.join(place);
            git(&upper.join(of), &["worktree", "add", "-q", path.to_str().unwrap(), "-b", "fix"]);
            let admin = Path::new(of).join(".git/worktrees/fix/gitdir");
            for file in [path.join(".git"), upper.join(admin)] {
                let text = fs::read_to_string(&file).unwrap();
                fs::write(&file, text.replace(upper.to_str().unwrap(), ws.to_str().unwrap())).unwrap();
            }
        });
        let result = commit_by(&scene, &layer, &Rules::default());
        assert!(parked(&result).contains(&place.to_owned()), "{place}: {result:?}");
        assert!(!ws.join(place).exists(), "{place}");
        drop(layer);
        fs::remove_dir_all(scene.path("layers/run")).unwrap();
    }
}
