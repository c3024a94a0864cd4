//! Random operations through a real overlay. Committed, at once or in two parts, they equal the same operations on a
//! plain copy; discarded, they leave the workspace as it was.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Entry, Op, Scene, commit_for_parent, reopen, snapshot};
use nexus_layer::{Change, ChangeKind, Conflict, LayerMode, Rules, Workspace};
use nexus_model::ByteText;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

#[test]
#[ignore = "the child of the other tests"]
fn child_commits() {
    commit_for_parent();
}

#[test]
#[ignore = "the child of the other tests"]
fn child_decides() {
    let (scene, decision): (PathBuf, Decision) =
        serde_json::from_str(&std::env::var("NEXUS_TEST_ORDER").unwrap()).unwrap();
    let outcome = carry_out(&scene, &decision);
    std::fs::write(scene.join("outcome"), serde_json::to_vec(&outcome).unwrap()).unwrap();
}

/// Decision of a reviewer about a parked layer.
#[derive(Debug, Serialize, Deserialize)]
enum Decision {
    Discard,
    /// These paths, or everything; protected ones too.
    Accept(Option<Vec<ByteText>>),
}

/// Result of the decision.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    committed: Vec<Change>,
    parked: Vec<Change>,
    conflicts: Vec<Conflict>,
}

fn accept_rules(only: Option<Vec<ByteText>>) -> Rules {
    Rules { only, accept_protected: true, ..Rules::default() }
}

fn carry_out(scene: &Path, decision: &Decision) -> Outcome {
    let layer = reopen(&scene.join("layers"));
    let workspace = Workspace::open(&scene.join("ws")).unwrap();
    match decision {
        Decision::Discard => {
            layer.discard().unwrap();
            Outcome::default()
        }
        Decision::Accept(only) => {
            let result = layer.commit(&workspace, &accept_rules(only.clone())).unwrap();
            Outcome { committed: result.changes.changes, parked: result.parked, conflicts: result.conflicts }
        }
    }
}

/// Carries out the decision as the layer's user.
fn decide(scene: &Scene, decision: &Decision) -> Outcome {
    if scene.mode == LayerMode::Root {
        return carry_out(scene.dir.path(), decision);
    }
    chown_layer(scene);
    let order = serde_json::to_string(&(scene.dir.path(), decision)).unwrap();
    scene.child("child_decides", &order, &[], false).unwrap_or_else(|output| panic!("{output}"));
    serde_json::from_slice(&std::fs::read(scene.path("outcome")).unwrap()).unwrap()
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

/// Cases of each mode.
fn cases() -> u32 {
    std::env::var("NEXUS_SOAK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

/// Returns the operations without those that make named pipes: one of the workspace waits when its directory goes (S-1395).
fn without_pipes(base: &[Op]) -> Vec<Op> {
    base.iter().filter(|op| !matches!(op, Op::Fifo(_))).cloned().collect()
}

/// Gives named pipes names that no file has: one in the place of a file waits (S-1472).
fn with_pipes_apart(run: &[Op]) -> Vec<Op> {
    let apart = |op: &Op| match op {
        Op::Fifo(path) => Op::Fifo([path, &b"-pipe"[..]].concat()),
        other => other.clone(),
    };
    run.iter().map(apart).collect()
}

fn check(mode: LayerMode, base: &[Op], run: &[Op]) {
    let scene = Scene::one_of_many(mode, &without_pipes(base));
    let layer = scene.layer(&with_pipes_apart(run));
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
    std::os::unix::fs::chown(parked, Some(common::user()), Some(common::user())).unwrap();
}

fn check_discard(mode: LayerMode, base: &[Op], run: &[Op]) {
    let scene = Scene::one_of_many(mode, base);
    let before = snapshot(&scene.ws(), true);
    scene.layer(run).park(&scene.workspace(), &Rules::default()).unwrap();
    decide(&scene, &Decision::Discard);
    assert_eq!(snapshot(&scene.ws(), true), before);
    assert!(!scene.path("layers/run").exists(), "the layer is gone");
}

/// Accepts the changes whose bits are set, then the rest.
fn check_accept_some(mode: LayerMode, base: &[Op], run: &[Op], bits: u64) {
    let scene = Scene::one_of_many(mode, &without_pipes(base));
    let before = snapshot(&scene.ws(), true);
    let reported = scene.layer(run).park(&scene.workspace(), &Rules::default()).unwrap().changes;
    let is_set = |at: usize| bits >> (at % 64) & 1 == 1;
    let chosen: Vec<ByteText> =
        reported.iter().enumerate().filter(|(at, _)| is_set(*at)).map(|(_, one)| one.path.clone()).collect();
    let first = decide(&scene, &Decision::Accept(Some(chosen.clone())));
    assert_eq!(first.conflicts, [], "accepting {chosen:?}");
    only_what_was_chosen(&chosen, &first.committed);
    only_what_was_told(&before, &snapshot(&scene.ws(), true), &first.committed);
    if first.parked.is_empty() {
        assert!(!scene.path("layers/run").exists(), "the layer is gone");
    } else {
        let rest = reopen(&scene.path("layers")).changes(&scene.workspace(), &Rules::default()).unwrap();
        // A name whose other name was committed as a file of its own may have nothing left to change.
        let waits = paths(&first.parked);
        assert!(paths(&rest.changes).is_subset(&waits), "after {chosen:?} {waits:?} was said to wait, found: {rest:?}");
        let second = decide(&scene, &Decision::Accept(None));
        assert_eq!((second.conflicts, second.parked), (vec![], vec![]), "the rest after {chosen:?}");
    }
    let (mut found, mut wanted) = (scene.found(), scene.wanted());
    // Names of one file that did not arrive together are several files.
    let parted = parted_names(&wanted, &first.committed);
    for name in &parted {
        for entry in [found.get_mut(name), wanted.get_mut(name)].into_iter().flatten() {
            entry.4.clear();
        }
    }
    assert_eq!(found, wanted, "after {chosen:?} and the rest");
    assert!(!scene.path("layers/run").exists(), "the layer is gone");
}

/// The names of files of which some names were committed and others were not.
fn parted_names(wanted: &BTreeMap<Vec<u8>, Entry>, committed: &[Change]) -> BTreeSet<Vec<u8>> {
    let is_told = |path: &[u8]| committed.iter().any(|one| is_at_or_beneath(path, &one.path.0));
    let mut groups: BTreeMap<&[u8], Vec<&Vec<u8>>> = BTreeMap::new();
    for (name, entry) in wanted {
        groups.entry(&entry.4).or_default().push(name);
    }
    let is_parted = |names: &&Vec<&Vec<u8>>| {
        let told = names.iter().filter(|name| is_told(name)).count();
        told != 0 && told != names.len()
    };
    groups.values().filter(is_parted).flatten().map(|name| (*name).clone()).collect()
}

fn paths(changes: &[Change]) -> BTreeSet<&ByteText> {
    changes.iter().map(|one| &one.path).collect()
}

fn is_at_or_beneath(path: &[u8], top: &[u8]) -> bool {
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Asserts that each committed change was chosen, lies below a chosen one, or is the way to it.
fn only_what_was_chosen(chosen: &[ByteText], committed: &[Change]) {
    for change in committed {
        let path = &change.path.0;
        let fits = |one: &ByteText| is_at_or_beneath(path, &one.0) || is_at_or_beneath(&one.0, path);
        assert!(chosen.iter().any(fits), "{change:?} came along with {chosen:?}");
    }
}

/// The workspace differs only where the result of the accept says so. All names of one file change together.
fn only_what_was_told(before: &BTreeMap<Vec<u8>, Entry>, after: &BTreeMap<Vec<u8>, Entry>, committed: &[Change]) {
    let mut tops = Vec::new();
    for change in committed {
        tops.push(&change.path.0);
        if let ChangeKind::Renamed { from } = &change.kind {
            tops.push(&from.0);
        }
    }
    let is_told = |path: &[u8]| tops.iter().any(|top| is_at_or_beneath(path, top));
    let group = |path: &[u8]| before.get(path).filter(|one| one.0 != 'd').map(|one| one.4.clone());
    let told_groups: BTreeSet<_> = before.keys().filter(|path| is_told(path)).filter_map(|path| group(path)).collect();
    for path in before.keys().chain(after.keys()) {
        if is_told(path) || group(path).is_some_and(|group| told_groups.contains(&group)) {
            continue;
        }
        // The first name of the file may have been committed away: only which names belong together counts, at the end.
        let shown = |one: &Entry| (one.0, one.1, one.2.clone(), one.3.clone());
        let (old, new) = (before.get(path).map(shown), after.get(path).map(shown));
        assert_eq!(old, new, "{} changed without a word: {committed:?}", String::from_utf8_lossy(path));
    }
}

/// Ways in which a reviewer ends a run other than by taking all of it.
#[derive(Debug, Clone)]
enum End {
    Discard,
    AcceptSome(u64),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![1 => Just(End::Discard), 3 => any::<u64>().prop_map(End::AcceptSome)]
}

fn check_end(mode: LayerMode, base: &[Op], run: &[Op], end: &End) {
    match end {
        End::Discard => check_discard(mode, base, run),
        End::AcceptSome(bits) => check_accept_some(mode, base, run, *bits),
    }
}

/// Half of the cases of a mode are committed at once, half end in another way.
fn config() -> Config {
    let cases = cases().div_ceil(2);
    Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() }
}

#[test]
fn a_layer_of_root_is_discarded_without_a_trace_or_accepted_in_two_parts() {
    TestRunner::new(config())
        .run(&(ops(24, true, true), ops(24, true, true), end()), |(base, run, end)| {
            check_end(LayerMode::Root, &base, &run, &end);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_layer_of_a_user_is_discarded_without_a_trace_or_accepted_in_two_parts() {
    TestRunner::new(config())
        .run(&(ops(24, false, false), ops(24, false, true), end()), |(base, run, end)| {
            check_end(LayerMode::User, &base, &run, &end);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_committed_layer_of_root_equals_the_same_operations_without_a_layer() {
    TestRunner::new(config())
        .run(&(ops(24, true, true), ops(24, true, true)), |(base, run)| {
            check(LayerMode::Root, &base, &run);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_committed_layer_of_a_user_equals_the_same_operations_without_a_layer() {
    TestRunner::new(config())
        .run(&(ops(24, false, false), ops(24, false, true)), |(base, run)| {
            check(LayerMode::User, &base, &run);
            Ok(())
        })
        .unwrap();
}

#[test]
fn directories_without_write_permission_are_passed_and_keep_their_modes() {
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

/// Smallest cases that once failed: each choice of changes (the bits, in the order of the paths) first, then the rest.
#[test]
fn the_rest_of_a_layer_is_no_conflict_with_the_part_that_was_accepted_before() {
    let b = |text: &str| text.as_bytes().to_vec();
    let file = |path: &str| Op::Write(b(path), "x".into());
    let (dir, chmod) = (|path: &str| Op::Mkdir(b(path)), |path: &str, mode| Op::Chmod(b(path), mode));
    let rename = |from: &str, to: &str| Op::Rename(b(from), b(to));
    let link = |from: &str, to: &str| Op::Link(b(from), b(to));
    let cases = [
        // The old name of a file goes before its new name comes, and is taken by another file.
        (vec![file("c")], vec![rename("c", "a")]),
        (vec![file("c")], vec![rename("c", "a"), file("c")]),
        (vec![dir("d"), file("d/c")], vec![rename("d/c", "a"), Op::RemoveTree(b("d"))]),
        // The mode of a directory waits, and work is done in the directory of the layer.
        (vec![dir("d"), dir("d/in")], vec![chmod("d", 0o644), dir("x"), dir("x/in")]),
        // The mode of a directory would shut its owner out while something in it waits.
        (vec![dir("d"), dir("d/in")], vec![file("d/in/x"), chmod("d", 0o644)]),
        (vec![], vec![dir("n"), file("n/f"), dir("n/sub"), chmod("n", 0o055)]),
        // A directory that is closed to its owner at the end of the commit, in which something was made.
        (vec![dir("x"), dir("x/b")], vec![chmod("x", 0o644), Op::Symlink(b("a"), b("a")), dir("x/b/a")]),
    ];
    let linked = [
        (vec![file("c"), link("c", "d")], vec![rename("c", "a")]),
        (vec![file("c"), link("c", "d")], vec![Op::Remove(b("c")), Op::Append(b("d"), "y".into())]),
        (vec![file("c"), link("c", "d"), link("c", "e")], vec![Op::Remove(b("c")), Op::Remove(b("d"))]),
    ];
    for (base, run) in &cases {
        for bits in 0..8 {
            check_accept_some(LayerMode::User, base, run, bits);
        }
    }
    for (base, run) in cases.iter().chain(&linked) {
        for bits in 0..8 {
            check_accept_some(LayerMode::Root, base, run, bits);
        }
    }
}
