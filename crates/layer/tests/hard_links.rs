//! Runs that give, move and take names of files with several names: a commit takes its own links and removals for no change from
//! outside, neither at once nor where parts of the run are accepted one by one.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Entry, Op, Scene, b, rename, reopen, snapshot, wait_for_tick, write};
use nexus_layer::{Change, Committed, LayerMode, Rules};
use nexus_model::ByteText;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

fn link(from: &str, to: &str) -> Op {
    Op::Link(b(from), b(to))
}

fn tree(path: &str) -> Op {
    Op::RemoveTree(b(path))
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

/// Two directories with one file in both.
fn two_names() -> Vec<Op> {
    vec![mkdir("a"), mkdir("b"), write("a/f", "one"), link("a/f", "b/h")]
}

fn commit(scene: &Scene, rules: &Rules) -> Committed {
    let layer = reopen(&scene.path("layers"));
    layer.commit(&scene.workspace(), rules).unwrap()
}

/// Contents by path, without which names belong together.
fn contents(entries: BTreeMap<Vec<u8>, Entry>) -> BTreeMap<Vec<u8>, Entry> {
    entries
        .into_iter()
        .map(|(path, (kind, mode, content, attr, _))| (path, (kind, mode, content, attr, Vec::new())))
        .collect()
}

/// Commits a run at once. Nothing may be kept back.
fn at_once(mode: LayerMode, base: &[Op], run: &[Op]) -> Scene {
    let scene = Scene::one_of_many(mode, base);
    let done = scene.layer(run).commit(&scene.workspace(), &Rules::default()).unwrap();
    assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{mode:?} {base:?} {run:?}: {done:?}");
    if mode == LayerMode::Root {
        assert_eq!(scene.found(), scene.wanted(), "{base:?} {run:?}");
    }
    assert!(!scene.path("layers/run").exists());
    scene
}

#[test]
fn a_commit_takes_its_own_links_for_no_change_from_outside() {
    let runs = [
        vec![rename("a/f", "x"), tree("a"), tree("b")],
        vec![link("a/f", "x"), tree("a"), tree("b")],
        vec![rename("a/f", "b/k"), rename("b", "z"), tree("a")],
        vec![link("b/h", "x"), tree("b"), Op::Remove(b("a/f"))],
        vec![link("a/f", "x"), tree("a"), tree("b"), mkdir("a"), link("x", "a/g")],
    ];
    for mode in MODES {
        for run in &runs {
            at_once(mode, &two_names(), run);
        }
        // A directory goes, and another one comes to its name, with further names of what changed in both.
        let base = [&two_names()[..], &[mkdir("a/s"), write("x", "two"), link("x", "a/s/k")]].concat();
        at_once(mode, &base, &[tree("a"), write("x", "new"), rename("b", "a")]);
        at_once(mode, &two_names(), &[rename("a/f", "b/k"), Op::Append(b("b/k"), "more".into()), rename("b", "a")]);
        // A file that had one name.
        at_once(mode, &[mkdir("a"), write("a/f", "one")], &[link("a/f", "x"), tree("a")]);
        // A file comes to the name of a directory in which it has a further name.
        let base = [mkdir("a"), mkdir("a/s"), write("x", "two"), link("x", "a/s/k")];
        at_once(mode, &base, &[tree("a"), rename("x", "a")]);
    }
}

#[test]
fn a_directory_that_leaves_one_which_is_removed_is_no_change_from_outside() {
    let base = [mkdir("a"), mkdir("a/b"), mkdir("a/b/c"), write("a/b/c/f", "one"), write("a/b/g", "two")];
    let runs = [
        vec![rename("a/b/c", "c"), tree("a")],
        vec![rename("a/b/c", "c"), tree("a"), mkdir("a"), mkdir("a/b"), write("a/b/new", "new")],
        vec![rename("a/b/c", "c"), tree("a"), rename("c", "a")],
    ];
    for mode in MODES {
        for run in &runs {
            at_once(mode, &base, run);
        }
    }
}

/// Accepts the changes one by one, in the order that `next` says. Returns what all of it came to.
fn one_by_one(mode: LayerMode, base: &[Op], run: &[Op], mut next: u64) -> Scene {
    let scene = Scene::one_of_many(mode, base);
    let mut waits = scene.layer(run).park(&scene.workspace(), &Rules::default()).unwrap().changes;
    let mut told = Vec::new();
    let story = |told: &[ByteText]| format!("{mode:?} {base:?} {run:?} after {told:?}");
    while scene.path("layers/run").exists() {
        let path =
            waits.get(usize::try_from(next % 13).unwrap() % waits.len().max(1)).map(|one: &Change| one.path.clone());
        // A part that cannot be taken alone ends it.
        next /= 13;
        let only = path.filter(|_| next > 0).map(|path| vec![path]);
        let rules = Rules { only: only.clone(), accept_protected: true, ..Rules::default() };
        let done = commit(&scene, &rules);
        assert!(done.conflicts.is_empty(), "{}: {done:?}", story(&told));
        told.extend(only.clone().into_iter().flatten());
        assert!(only.is_some() || done.parked.is_empty(), "{}: {done:?}", story(&told));
        waits = done.parked;
        if only.is_none() {
            break;
        }
    }
    scene
}

#[test]
fn a_part_that_was_accepted_makes_no_conflict_of_the_rest() {
    let base = [mkdir("d"), write("f", "one"), link("f", "d/h"), write("d/x", "x")];
    for mode in MODES {
        for run in [
            vec![tree("d"), Op::Append(b("f"), "two".into())],
            vec![rename("d", "e"), Op::Append(b("f"), "two".into())],
            vec![tree("d"), Op::Remove(b("f"))],
            vec![tree("d"), rename("f", "g")],
        ] {
            // The deletion first, and the file first.
            for next in [13 * 13, 13 * 13 + 1, 13 * 13 + 2] {
                one_by_one(mode, &base, &run, next);
            }
        }
    }
}

#[test]
fn names_that_the_layer_does_not_have_make_no_conflict_of_the_rest() {
    let three = [mkdir("a"), mkdir("b"), write("x", "two"), link("x", "b/f"), link("x", "a/g"), write("z", "z")];
    let two = [&two_names()[..], &[write("x", "two"), link("x", "a/g")]].concat();
    let runs: [(&[Op], Vec<Op>); 4] = [
        (&three, vec![rename("a/g", "y"), Op::Remove(b("x"))]),
        (&three, vec![tree("b"), write("a/g", "new"), tree("a")]),
        (&three, vec![link("b/f", "y"), link("b/f", "w"), write("z", "new")]),
        // A new file at the name of one that lives on under another name.
        (&two, vec![Op::Append(b("a/f"), "more".into()), rename("a/g", "a/f")]),
    ];
    for (base, run) in &runs {
        for next in [0, 13, 14, 15, 13 * 13, 13 * 13 + 1, 13 * 14, 13 * 14 + 1] {
            let whole = contents(snapshot(&at_once(LayerMode::Root, base, run).ws(), false));
            let parts = contents(snapshot(&one_by_one(LayerMode::Root, base, run, next).ws(), false));
            assert_eq!(parts, whole, "{run:?} {next}");
        }
    }
}

/// The first of two accepts does not cover a change that another process makes between them.
#[test]
fn a_change_between_two_accepts_is_still_a_conflict() {
    let base = [mkdir("d"), write("f", "one"), link("f", "d/h")];
    let run = [tree("d"), Op::Append(b("f"), "two".into())];
    type Act = fn(&Scene);
    let acts: [(&str, Act); 3] = [
        ("an edit", |scene| fs::write(scene.ws().join("f"), "mine").unwrap()),
        ("a chmod", |scene| fs::set_permissions(scene.ws().join("f"), fs::Permissions::from_mode(0o600)).unwrap()),
        ("another file", |scene| {
            fs::write(scene.ws().join("new"), "one").unwrap();
            fs::rename(scene.ws().join("new"), scene.ws().join("f")).unwrap();
        }),
    ];
    for mode in MODES {
        for (story, act) in &acts {
            for (first, is_after) in [("d", true), ("d", false), ("f", true)] {
                let scene = Scene::new(mode, &base);
                scene.layer(&run).park(&scene.workspace(), &Rules::default()).unwrap();
                let only = Rules { only: Some(vec![first.into()]), ..Rules::default() };
                if !is_after {
                    act(&scene);
                }
                let done = commit(&scene, &only);
                assert!(is_after == done.conflicts.is_empty() || first == "d", "{mode:?} {story}: {done:?}");
                wait_for_tick(scene.dir.path());
                if is_after && first == "d" {
                    act(&scene);
                } else if first == "f" {
                    fs::write(scene.ws().join("d/h"), "mine").unwrap();
                }
                let done = commit(&scene, &Rules::default());
                assert!(!done.conflicts.is_empty(), "{mode:?} {story} {first} {is_after}: {done:?}");
            }
        }
    }
}

/// A mounted file system.
struct Mounted(PathBuf);

impl Mounted {
    fn at(place: &Path, image: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-o", "loop"]).arg(image).arg(place).output().unwrap();
        mounted.status.success().then(|| Self(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        Command::new("umount").args(["--lazy"]).arg(&self.0).status().ok();
    }
}

/// The files of a snapshot have the numbers and times of birth of those that they were made of.
#[test]
fn a_file_of_a_snapshot_is_not_a_hard_link() {
    let room = tempfile::tempdir().unwrap();
    let (image, place) = (room.path().join("image"), room.path().join("mounted"));
    fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    fs::create_dir(&place).unwrap();
    let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let Some(_mounted) = Mounted::at(&place, &image) else {
        println!("in part: test a_file_of_a_snapshot_is_not_a_hard_link: no Btrfs here, or no right to mount");
        return;
    };
    let base = [mkdir("d"), write("f", "one"), link("f", "d/g")];
    let scene = Scene::new_in(&place, LayerMode::Root, &base);
    let made = Command::new("btrfs").args(["subvolume", "snapshot"]).arg(&place).arg(scene.ws().join("sub")).output();
    assert!(made.as_ref().unwrap().status.success(), "{made:?}");
    wait_for_tick(scene.dir.path());
    let layer = scene.layer(&[Op::Append(b("f"), " two".into())]);
    let done = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{done:?}");
    let own = scene.ws().strip_prefix(&place).unwrap().to_owned();
    let text = |name: PathBuf| fs::read_to_string(scene.ws().join(name)).unwrap();
    assert_eq!([text("f".into()), text("d/g".into())], ["one two", "one two"]);
    assert_eq!(text(Path::new("sub").join(own).join("f")), "one");
}

fn file() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a/f", "a/g", "b/f", "b/h", "a/s/k", "x", "y"])
}

fn directory() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "a/s", "b/t"])
}

fn act() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (file(), file()).prop_map(|(from, to)| link(from, to)),
        4 => (file(), file()).prop_map(|(from, to)| rename(from, to)),
        3 => file().prop_map(|at| Op::Remove(b(at))),
        3 => directory().prop_map(tree),
        3 => (directory(), directory()).prop_map(|(from, to)| rename(from, to)),
        2 => directory().prop_map(mkdir),
        2 => file().prop_map(|at| Op::Append(b(at), "more".into())),
        1 => file().prop_map(|at| write(at, "new")),
    ]
}

/// Directories, two files, and names of these.
fn base() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec((file(), file()).prop_map(|(from, to)| link(from, to)), 2..6).prop_map(|links| {
        let start = [mkdir("a"), mkdir("b"), mkdir("a/s"), write("a/f", "one"), write("x", "two")];
        [&start[..], &links[..]].concat()
    })
}

/// Runs of each test.
fn config() -> Config {
    let cases = std::env::var("NEXUS_SOAK_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() }
}

/// Of root: an overlay without an index answers some calls on such files with an error.
#[test]
fn random_runs_with_hard_links_end_as_the_run_saw_them() {
    TestRunner::new(config())
        .run(&(base(), prop::collection::vec(act(), 2..9)), |(base, run)| {
            at_once(LayerMode::Root, &base, &run);
            Ok(())
        })
        .unwrap();
}

#[test]
fn random_parts_of_runs_with_hard_links_end_as_the_whole() {
    TestRunner::new(config())
        .run(&(base(), prop::collection::vec(act(), 2..7), any::<u32>()), |(base, run, next)| {
            let whole = contents(snapshot(&at_once(LayerMode::Root, &base, &run).ws(), false));
            let parts = contents(snapshot(&one_by_one(LayerMode::Root, &base, &run, next.into()).ws(), false));
            assert_eq!(parts, whole, "{base:?} {run:?} {next}");
            Ok(())
        })
        .unwrap();
}
