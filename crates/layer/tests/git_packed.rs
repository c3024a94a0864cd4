//! The host packs its refs while a run moves some of them: with the real git and a real overlay.

#![allow(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene};
use nexus_layer::Rules;
use repository::{cloned_scene, commit_by, git, parked};
use std::fs;

fn git_ops(work: &str) -> Vec<Op> {
    work.split(',').map(|words| Op::Git(words.split(' ').map(str::to_owned).collect())).collect()
}

/// Works that leave the old value of a ref to its log, the ref, and what the host does to it to have another value.
const WORKS: &[(&str, &str, &str)] = &[
    ("stash -q", "refs/stash", "update-ref -m host refs/stash main"),
    ("commit -q --amend -m amended", "refs/heads/main", "commit -q --allow-empty -m host"),
    ("reset -q --hard HEAD~", "refs/heads/main", "commit -q --allow-empty -m host"),
];

/// A clone with a stash, a second commit, and an edit.
fn scene() -> Scene {
    let scene = cloned_scene();
    let ws = scene.ws();
    fs::write(ws.join("f"), "stashed").unwrap();
    git(&ws, &["stash", "-q"]);
    fs::write(ws.join("f"), "2").unwrap();
    git(&ws, &["commit", "-q", "-a", "-m", "2"]);
    fs::write(ws.join("f"), "edit").unwrap();
    scene
}

/// `git gc` and `git maintenance` pack refs, and change the value of none.
#[test]
fn refs_that_the_host_packs_are_no_reason_to_keep_a_run_back() {
    for (work, name, other) in WORKS {
        for moves in [false, true] {
            let scene = scene();
            let ws = scene.ws();
            let layer = scene.layer(&git_ops(work));
            if moves {
                git(&ws, &other.split(' ').collect::<Vec<_>>());
            }
            let of_host = git(&ws, &["rev-parse", name]);
            git(&ws, &["pack-refs", "--all"]);
            assert!(fs::read_to_string(ws.join(".git/packed-refs")).unwrap().contains(name), "{work}");
            let result = commit_by(&scene, &layer, &Rules::default());
            let context = format!("{work} {moves}: {result:?}");
            assert_eq!(parked(&result).is_empty() && result.conflicts.is_empty(), !moves, "{context}");
            let now = git(&ws, &["rev-parse", name]);
            assert_eq!(now == of_host, moves, "{context}");
            assert_eq!(git(&ws, &["rev-parse", &format!("{name}@{{1}}")]) == of_host, !moves, "{context}");
        }
    }
}
