//! Refs of git that a run leaves.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, wait_for_tick};
use nexus_facility::{LayerMode, Rules};

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
    let scene = Scene::one_of_many(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let result = scene.layer(run).commit(&scene.workspace(), &Rules::default()).unwrap();
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
