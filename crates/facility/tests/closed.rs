//! Directories that a run closes to their owner, and what a commit does when it cannot see into one.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, run_operations_of_parent, wait_for_tick};
use nexus_facility::{LayerMode, Rules};
use std::os::unix::fs::PermissionsExt as _;

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

fn b(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn parked(base: &[Op], run: &[Op], rules: &Rules) -> Vec<String> {
    let scene = Scene::new(LayerMode::Root, base);
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(run);
    let result = layer.commit(&scene.workspace(), rules).unwrap();
    assert_eq!(result.conflicts, []);
    result.parked.iter().map(|change| String::from_utf8_lossy(&change.path.0).into_owned()).collect()
}

/// Repositories, one of them bare and one below a plain directory, and directories without any.
fn base() -> Vec<Op> {
    let directories = [
        ".git",
        ".git/hooks",
        ".git/modules",
        ".git/modules/m",
        ".git/worktrees",
        ".git/worktrees/w",
        "srv.git",
        "srv.git/objects",
        "srv.git/refs",
        "srv.git/hooks",
        "outer",
        "outer/sub",
        "outer/sub/.git",
        "conf",
        "conf/.vscode",
        "tools",
        "tools/hk",
        "plain",
        "plain/in",
    ];
    let mut base: Vec<Op> = directories.iter().map(|path| Op::Mkdir(b(path))).collect();
    base.extend(["srv.git/HEAD", ".git/HEAD", "tools/hk/x", "plain/in/f"].map(|path| Op::Write(b(path), "x".into())));
    base
}

#[test]
fn closing_a_directory_of_git_to_its_owner_waits() {
    for path in [
        ".git",
        ".git/hooks",
        ".git/modules",
        ".git/modules/m",
        ".git/worktrees",
        ".git/worktrees/w",
        "srv.git",
        "srv.git/hooks",
        "outer",
        "outer/sub",
        "outer/sub/.git",
        "conf",
    ] {
        for mode in [0, 0o300, 0o600] {
            assert_eq!(parked(&base(), &[Op::Chmod(b(path), mode)], &Rules::default()), [path], "{path} {mode:o}");
        }
    }
    let protecting = Rules::protecting(&["tools/hk".to_owned()]).unwrap();
    assert_eq!(parked(&base(), &[Op::Chmod(b("tools"), 0)], &protecting), ["tools"]);
}

#[test]
fn other_modes_of_directories_are_committed() {
    for (path, mode) in [(".git", 0o500), (".git/hooks", 0o700), ("srv.git", 0o555), ("plain", 0), ("plain/in", 0o600)]
    {
        let none: [&str; 0] = [];
        assert_eq!(parked(&base(), &[Op::Chmod(b(path), mode)], &Rules::default()), none, "{path} {mode:o}");
    }
    // It is opened again.
    let mut base = base();
    base.push(Op::Chmod(b(".git"), 0));
    let none: [&str; 0] = [];
    assert_eq!(parked(&base, &[Op::Chmod(b(".git"), 0o755)], &Rules::default()), none);
}

#[test]
fn a_closed_directory_of_git_is_committed_when_it_is_named() {
    let scene = Scene::new(LayerMode::Root, &base());
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[Op::Chmod(b(".git"), 0)]);
    let named = vec![".git".into()];
    let rules = Rules { only: Some(named.clone()), named, ..Rules::default() };
    assert_eq!(layer.commit(&scene.workspace(), &rules).unwrap().parked, []);
    assert_eq!(scene.ws().join(".git").metadata().unwrap().permissions().mode() & 0o777, 0);
}
