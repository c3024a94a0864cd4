//! Refs of git that a run leaves.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, wait_for_tick};
use nexus_layer::{LayerMode, Rules};

fn write(path: &str, text: &str) -> Op {
    Op::Write(path.into(), text.into())
}

fn dir(path: &str) -> Op {
    Op::Mkdir(path.into())
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename(from.into(), to.into())
}

/// Commits `run` over a workspace made by `base`, and returns what waits.
fn parked(base: &[Op], run: &[Op]) -> Vec<String> {
    parked_by(base, run, &Rules { pushes_to_upstream: false, ..Rules::default() })
}

fn parked_by(base: &[Op], run: &[Op], rules: &Rules) -> Vec<String> {
    let scene = Scene::one_of_many(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let result = scene.layer(run).commit(&scene.workspace(), rules).unwrap();
    assert_eq!(result.conflicts, []);
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

/// A repository at `at`.
fn repository(at: &str) -> Vec<Op> {
    let path = |name: &str| format!("{at}/{name}");
    let mut ops = vec![dir(at)];
    ops.extend(["objects", "refs", "refs/heads"].map(|name| dir(&path(name))));
    ops.extend([write(&path("HEAD"), "ref: refs/heads/main\n"), write(&path("config"), "[core]\nbare = false\n")]);
    ops
}

/// `git push origin feat` would push the branch that it stands for.
#[test]
fn a_symbolic_branch_or_tag_waits() {
    let base = [
        repository(".git"),
        vec![dir(".git/refs/tags"), dir(".git/refs/remotes"), dir(".git/refs/remotes/origin")],
        vec![
            dir("d"),
            write("d/feat", "ref: refs/heads/main\n"),
            write(".git/refs/heads/alias", "ref: refs/heads/main\n"),
        ],
    ]
    .concat();
    let symbolic = "ref: refs/heads/main\n";
    for (path, text, waits) in [
        (".git/refs/heads/feat", symbolic, true),
        (".git/refs/tags/v1", symbolic, true),
        (".git/refs/remotes/origin/main", symbolic, true),
        (".git/refs/remotes/origin/HEAD", symbolic, true),
        (".git/refs/remotes/origin/HEAD", "ref: refs/remotes/origin/main\n", false),
        (".git/refs/heads/feat", "0a\n", false),
        (".git/refs/heads/alias", "0a\n", true),
        (".git/HEAD", "ref: refs/heads/feat\n", false),
    ] {
        let wanted: &[&str] = if waits { &[path] } else { &[] };
        assert_eq!(parked(&base, &[write(path, text)]), wanted, "{path} {text}");
    }
    // git passes over the blanks, and nothing reads them all.
    let padded = |path: &str| Op::Padded(path.into(), "ref: refs/heads/main".into(), 2_000_000);
    assert_eq!(parked(&base, &[padded(".git/refs/heads/feat")]), [".git/refs/heads/feat"]);
    assert_eq!(parked(&base, &[padded("feat")]), [""; 0]);
    assert!(!parked(&base, &[rename("d", ".git/refs/heads/d")]).is_empty(), "with a directory that moves there");
    assert_eq!(parked(&base, &[rename("d", "e")]), [""; 0]);
    let bare = repository("srv.git");
    assert_eq!(parked(&bare, &[write("srv.git/refs/heads/x", symbolic)]), ["srv.git/refs/heads/x"]);
}

/// Commits `run` as [`parked`] does, and returns why things wait.
fn reasons(base: &[Op], run: &[Op]) -> Vec<(String, String)> {
    let scene = Scene::one_of_many(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let result = scene.layer(run).commit(&scene.workspace(), &Rules::default()).unwrap();
    let shown = |change: &nexus_layer::Change| {
        (String::from_utf8_lossy(&change.path.0).into_owned(), change.protected.clone().unwrap_or_default())
    };
    result.parked.iter().map(shown).collect()
}

/// The next commit would go elsewhere, or git would take the directory for no repository.
#[test]
fn a_head_that_names_no_branch_and_no_commit_waits() {
    let base = [
        repository(".git"),
        vec![dir(".git/worktrees"), dir(".git/worktrees/w"), write(".git/worktrees/w/HEAD", "ref: refs/heads/w\n")],
        repository("srv.git"),
    ]
    .concat();
    let hash = "0123456789abcdef0123456789abcdef01234567\n";
    for place in [".git", ".git/worktrees/w", "srv.git"] {
        let path = format!("{place}/HEAD");
        for (text, waits) in [
            ("ref: refs/heads/topic\n", false),
            ("ref: refs/heads/../../config\n", true),
            ("ref: refs/remotes/origin/main\n", true),
            ("ref: refs/heads/.invalid\n", true),
            ("nothing\n", true),
        ] {
            let wanted: &[&str] = if waits { &[&path] } else { &[] };
            assert_eq!(parked(&base, &[write(&path, text)]), wanted, "{path} {text}");
        }
        let padded = Op::Padded(path.clone().into(), "ref: refs/heads/main".into(), 3_000_000);
        assert_eq!(parked(&base, &[padded]), [path.as_str()]);
        // The id of a commit is a good one, and no object of it is there.
        let scene = Scene::one_of_many(LayerMode::Root, &base);
        wait_for_tick(scene.dir.path());
        let result = scene.layer(&[write(&path, hash)]).commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(result.conflicts.len(), 1, "{path}: {result:?}");
    }
    assert_eq!(parked(&[], &repository("new.git")), [""; 0]);
    let new = |head: &str| [vec![dir("new")], repository("new/.git"), vec![write("new/.git/HEAD", head)]].concat();
    assert_eq!(parked(&[], &new("ref: refs/heads/.invalid\n")), [""; 0]);
    assert_eq!(parked(&[], &new("ref: refs/heads/a b\n")), ["new/.git/HEAD"]);
}

/// `git checkout -b fix origin` gives the new branch the upstream that `refs/remotes/origin/HEAD` names.
#[test]
fn the_default_branch_of_a_remote_stays() {
    let head = ".git/refs/remotes/origin/HEAD";
    let main = "ref: refs/remotes/origin/main\n";
    let without = [repository(".git"), vec![dir(".git/refs/remotes"), dir(".git/refs/remotes/origin")]].concat();
    let base = [without.clone(), vec![write(head, main)]].concat();
    assert_eq!(parked(&without, &[write(head, main)]), [""; 0], "a new one");
    assert_eq!(parked(&base, &[write(".git/refs/remotes/origin/topic", "0a\n")]), [""; 0]);
    for run in [
        vec![write(head, "ref: refs/remotes/origin/topic\n")],
        vec![write(head, "0123456789abcdef0123456789abcdef01234567\n")],
        vec![Op::Remove(head.into())],
        vec![Op::RemoveTree(".git/refs/remotes/origin".into())],
        vec![Op::RemoveTree(".git/refs/remotes".into())],
        vec![rename(".git/refs/remotes/origin", ".git/refs/remotes/up")],
    ] {
        assert!(!parked(&base, &run).is_empty(), "{run:?}");
    }
    assert_eq!(parked(&base, &[Op::RemoveTree(".git".into())]), [""; 0], "with its repository");
    // Where a push goes to upstreams, a new one waits too, but not that of a new repository.
    assert_eq!(parked_by(&without, &[write(head, main)], &Rules::default()), [head]);
    assert_eq!(parked_by(&[], &base, &Rules::default()), [""; 0]);
    let moved = [vec![dir("d"), write("d/HEAD", main)], without].concat();
    assert!(!parked(&moved, &[rename("d", ".git/refs/remotes/up")]).is_empty());
}

#[test]
fn refs_in_tables_wait_unless_their_repository_is_new() {
    let tables = |at: &str| {
        let path = |name: &str| format!("{at}/{name}");
        [repository(at), vec![dir(&path("reftable")), write(&path("reftable/tables.list"), "0x1.ref\n")]].concat()
    };
    let base = [tables(".git"), vec![dir("d"), write("d/0x2.ref", "x")]].concat();
    for run in [
        vec![write(".git/reftable/tables.list", "0x2.ref\n")],
        vec![write(".git/reftable/0x2.ref", "x")],
        vec![Op::Remove(".git/reftable/tables.list".into())],
        vec![Op::RemoveTree(".git/reftable".into())],
        vec![Op::RemoveTree(".git/reftable".into()), rename("d", ".git/reftable")],
    ] {
        assert!(!parked(&base, &run).is_empty(), "{run:?}");
    }
    assert_eq!(parked(&[], &[vec![dir("new")], tables("new/.git")].concat()), [""; 0]);
    assert_eq!(parked(&base, &[write(".git/refs/heads/x", "0a\n"), write("reftable", "x")]), [""; 0]);
    assert_eq!(
        parked(&tables("srv.git"), &[write("srv.git/reftable/tables.list", "x")]),
        ["srv.git/reftable/tables.list"]
    );
}

#[test]
fn a_directory_in_the_place_of_a_git_file_says_what_to_do() {
    let base = [dir("wt"), write("wt/.git", "gitdir: ../../repository/.git/worktrees/wt\n")];
    let run = [vec![Op::Remove("wt/.git".into())], repository("wt/.git")].concat();
    let (path, why) = reasons(&base, &run).remove(0);
    assert_eq!(path, "wt/.git");
    assert!(why.contains("a directory in the place of the file") && why.contains("reject it"), "{why}");
    let config = [Op::Remove(".git/config".into()), dir(".git/config")];
    let (path, why) = reasons(&repository(".git"), &config).remove(0);
    assert!(path == ".git/config" && why.contains("reject it"), "{path}: {why}");
}
