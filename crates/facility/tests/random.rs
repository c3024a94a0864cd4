//! Random operations through a real overlay, committed, equal the same operations on a plain copy.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, commit_for_parent, run_operations_of_parent};
use nexus_facility::{LayerMode, Rules};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

#[test]
#[ignore = "the child of the other tests"]
fn child_commits() {
    commit_for_parent();
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"a".to_vec()),
        Just(b"b".to_vec()),
        Just(b"c".to_vec()),
        Just(b"new\nline".to_vec()),
        Just(vec![b'x', 0xff, 0xfe]),
    ]
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join(&b'/'))
}

fn op(links: bool, tight_dirs: bool) -> impl Strategy<Value = Op> {
    let modes = if tight_dirs {
        vec![0o755, 0o700, 0o644, 0o600, 0o444, 0o555, 0, 0o200]
    } else {
        vec![0o755, 0o700, 0o555, 0o500]
    };
    prop_oneof![
        4 => (path(), "[a-z]{0,12}").prop_map(|(p, t)| Op::Write(p, t)),
        3 => (path(), "[a-z]{1,8}").prop_map(|(p, t)| Op::Append(p, t)),
        1 => path().prop_map(Op::Sparse),
        6 => path().prop_map(Op::Mkdir),
        3 => path().prop_map(Op::Remove),
        2 => path().prop_map(Op::RemoveTree),
        6 => (path(), path()).prop_map(|(a, b)| Op::Rename(a, b)),
        3 => (path(), path()).prop_map(move |(a, b)| if links { Op::Link(a, b) } else { Op::Mkdir(b) }),
        1 => (path(), path()).prop_map(|(a, b)| Op::Symlink(a, b)),
        1 => path().prop_map(Op::Fifo),
        2 => (path(), prop::sample::select(modes)).prop_map(|(p, m)| Op::Chmod(p, m)),
        1 => (path(), "[a-z]{1,4}").prop_map(|(p, v)| Op::SetXattr(p, v)),
        1 => path().prop_map(Op::Touch),
    ]
}

fn ops(count: usize, links: bool, tight: bool) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(links, tight), 1..count)
}

fn cases() -> u32 {
    std::env::var("NEXUS_SOAK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

fn check(mode: LayerMode, base: &[Op], run: &[Op]) {
    let scene = Scene::new(mode, base);
    let layer = scene.layer(run);
    if mode == LayerMode::User {
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        chown_layer(&scene);
        let order = scene.dir.path().to_str().unwrap().to_owned();
        scene.child("child_commits", &order, &[], false).unwrap_or_else(|output| panic!("{output}"));
    } else {
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert!(result.conflicts.is_empty(), "{:?}", result.conflicts);
        assert!(result.parked.is_empty(), "{:?}", result.parked);
    }
    assert_eq!(scene.found(), scene.wanted());
    assert!(!scene.path("layers/run").exists(), "the layer is gone");
}

fn chown_layer(scene: &Scene) {
    let parked = scene.path("layers/run/parked.json");
    std::os::unix::fs::chown(parked, Some(common::USER), Some(common::USER)).unwrap();
}

#[test]
fn a_committed_layer_of_root_equals_the_same_operations_without_a_layer() {
    let config = Config { cases: cases(), failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    TestRunner::new(config)
        .run(&(ops(24, true, true), ops(24, true, true)), |(base, run)| {
            check(LayerMode::Root, &base, &run);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_committed_layer_of_a_user_equals_the_same_operations_without_a_layer() {
    let config = Config { cases: cases(), failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    TestRunner::new(config)
        .run(&(ops(24, false, false), ops(24, false, true)), |(base, run)| {
            check(LayerMode::User, &base, &run);
            Ok(())
        })
        .unwrap();
}

#[test]
fn folders_without_write_permission_are_passed_and_keep_their_modes() {
    let b = |text: &str| text.as_bytes().to_vec();
    let base = [
        Op::Mkdir(b("p")),
        Op::Mkdir(b("p/q")),
        Op::Write(b("p/q/f"), "old".into()),
        Op::Write(b("p/q/gone"), "old".into()),
        Op::Chmod(b("p/q"), 0o555),
        Op::Chmod(b("p"), 0o555),
    ];
    let run = [
        Op::Append(b("p/q/f"), "new".into()),
        Op::Remove(b("p/q/gone")),
        Op::Mkdir(b("n")),
        Op::Write(b("n/f"), "x".into()),
        Op::Chmod(b("n/f"), 0),
        Op::Chmod(b("n"), 0),
    ];
    check(LayerMode::User, &base, &run);
    check(LayerMode::Root, &base, &run);
}
