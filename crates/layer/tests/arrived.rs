//! A directory of the host comes to the name of a directory that a run made. Nothing of either is lost: a name that both have
//! is a conflict, other names of both stay, and no name that the run never saw is deleted.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, run_op, wait_for_tick, write};
use nexus_layer::review::diff::{Choice, DiffOptions};
use nexus_layer::{Committed, Layer, LayerMode, Rules};
use std::fs;
use std::path::Path;

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

fn mkdir(path: &str) -> Op {
    Op::Mkdir(b(path))
}

fn host(scene: &Scene, ops: &[Op]) {
    for op in ops {
        run_op(&scene.ws(), op).unwrap();
        // What is older keeps its times.
        if let (LayerMode::User, Op::Write(path, _) | Op::Mkdir(path)) = (scene.mode, op) {
            common::give(&common::at(&scene.ws(), path));
        }
    }
}

fn commit(scene: &Scene, layer: &Layer, only: Option<&[&str]>) -> Committed {
    let only = only.map(|paths| paths.iter().map(|path| b(path).into()).collect());
    layer.commit(&leased(scene), &Rules { only, ..Rules::default() }).unwrap()
}

fn conflicts(done: &Committed) -> Vec<String> {
    done.conflicts.iter().map(|one| String::from_utf8_lossy(&one.path.0).into_owned()).collect()
}

fn text(at: &Path) -> String {
    fs::read_to_string(at).unwrap_or_else(|error| error.kind().to_string())
}

/// The user's directory with three files, outside of the place that the run uses, and older than the run.
fn src() -> Vec<Op> {
    vec![
        mkdir("src"),
        write("src/f1", "user 1"),
        write("src/f2", "user 2"),
        mkdir("src/in"),
        write("src/in/f3", "user 3"),
    ]
}

/// Fails unless the user's files are all in a directory of the workspace.
fn has_all(scene: &Scene, place: &str, what: &str) {
    for (name, wanted) in [("f1", "user 1"), ("f2", "user 2"), ("in/f3", "user 3")] {
        assert_eq!(text(&scene.ws().join(place).join(name)), wanted, "{what}: {name}");
    }
}

#[test]
fn a_directory_that_came_to_the_name_of_a_new_one_stays() {
    for mode in MODES {
        for (what, base, run, act, place, found) in [
            (
                "one file of both",
                vec![],
                vec![mkdir("lib"), write("lib/f1", "run")],
                vec![common::rename("src", "lib")],
                "lib",
                "lib/f1",
            ),
            (
                "a file deeper in both",
                vec![],
                vec![mkdir("lib"), mkdir("lib/in"), write("lib/in/f3", "run")],
                vec![common::rename("src", "lib")],
                "lib",
                "lib/in/f3",
            ),
            (
                "a file of the run and a directory of the user",
                vec![],
                vec![mkdir("lib"), write("lib/in", "run")],
                vec![common::rename("src", "lib")],
                "lib",
                "lib/in",
            ),
            (
                "a directory of the run and a file of the user",
                vec![],
                vec![mkdir("lib"), mkdir("lib/f2"), write("lib/f2/x", "run")],
                vec![common::rename("src", "lib")],
                "lib",
                "lib/f2",
            ),
            (
                "a directory that the run made under another name",
                vec![],
                vec![mkdir("x"), write("x/f1", "run"), common::rename("x", "lib")],
                vec![common::rename("src", "lib")],
                "lib",
                "lib/f1",
            ),
            (
                "in a directory that was there",
                vec![mkdir("d"), write("d/old", "old")],
                vec![mkdir("d/lib"), write("d/lib/f1", "run")],
                vec![common::rename("src", "d/lib")],
                "d/lib",
                "d/lib/f1",
            ),
            (
                "in a directory that the run replaced",
                vec![mkdir("d")],
                vec![Op::RemoveTree(b("d")), mkdir("d"), mkdir("d/lib"), write("d/lib/f1", "run")],
                vec![common::rename("src", "d/lib")],
                "d/lib",
                "d/lib/f1",
            ),
            (
                "moved and then filled",
                vec![],
                vec![mkdir("lib"), write("lib/f1", "run")],
                vec![common::rename("src", "lib"), write("lib/more", "user")],
                "lib",
                "lib/f1",
            ),
            (
                "made afresh, and the files moved into it",
                vec![],
                vec![mkdir("lib"), write("lib/f1", "run")],
                vec![
                    mkdir("lib"),
                    common::rename("src/in", "lib/in"),
                    common::rename("src/f1", "lib/f1"),
                    common::rename("src/f2", "lib/f2"),
                ],
                "lib",
                "lib/f1",
            ),
        ] {
            let what = format!("{what} {mode:?}");
            let scene = Scene::new(mode, &[src(), base].concat());
            let layer = scene.layer(&run);
            host(&scene, &act);
            let done = commit(&scene, &layer, None);
            assert!(conflicts(&done).iter().any(|path| path == found), "{what}: {done:?}");
            has_all(&scene, place, &what);
            assert!(common::has(&scene.path("layers/run/upper"), "run"), "{what}: the run's version waits");
        }
    }
}

/// A directory that came while the run was at work, as a commit of another run brings it: older than this run's start.
#[test]
fn new_names_of_two_directories_come_together() {
    for mode in MODES {
        let scene = Scene::new(mode, &src());
        let layer = scene.layer(&[mkdir("lib"), write("lib/new", "run"), mkdir("lib/in"), write("lib/in/new", "run")]);
        host(&scene, &[common::rename("src", "lib")]);
        let done = commit(&scene, &layer, None);
        assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{mode:?}: {done:?}");
        has_all(&scene, "lib", &format!("{mode:?}"));
        assert_eq!([text(&scene.ws().join("lib/new")), text(&scene.ws().join("lib/in/new"))], ["run", "run"]);
    }
}

#[test]
fn what_both_directories_have_alike_is_not_a_conflict() {
    for mode in MODES {
        let alike = |path: &str| [write(path, "user 1"), Op::Date(b(path), 1_000_000)];
        let scene = Scene::new(mode, &[&src()[..], &alike("src/f1")].concat());
        let layer = scene.layer(&[&[mkdir("lib")][..], &alike("lib/f1"), &[write("lib/new", "run")]].concat());
        host(&scene, &[common::rename("src", "lib")]);
        let done = commit(&scene, &layer, None);
        assert!(done.conflicts.is_empty(), "{mode:?}: {done:?}");
        has_all(&scene, "lib", &format!("{mode:?}"));
    }
}

#[test]
fn the_names_that_only_the_run_has_can_be_accepted() {
    for mode in MODES {
        let scene = Scene::new(mode, &src());
        let layer = scene.layer(&[mkdir("lib"), write("lib/f1", "run"), write("lib/new", "run")]);
        host(&scene, &[common::rename("src", "lib")]);
        let done = commit(&scene, &layer, Some(&["lib/new"]));
        assert!(done.conflicts.is_empty() && done.parked.len() == 1, "{mode:?}: {done:?}");
        has_all(&scene, "lib", &format!("{mode:?}"));
        assert_eq!(text(&scene.ws().join("lib/new")), "run");
        drop(layer);
        let layer = common::reopen(&scene.path("layers"));
        let done = commit(&scene, &layer, None);
        assert_eq!(conflicts(&done), ["lib/f1"], "{mode:?}: {done:?}");
        has_all(&scene, "lib", &format!("{mode:?}"));
    }
}

/// The harmless twin: the directory was there, and the run made it afresh.
#[test]
fn a_directory_that_a_run_made_afresh_loses_its_old_names() {
    for mode in MODES {
        for act in [vec![], vec![write("beside", "user")], vec![Op::Chmod(b("src"), 0o700), Op::Chmod(b("src"), 0o755)]]
        {
            let scene = Scene::new(mode, &src());
            let layer = scene.layer(&[Op::RemoveTree(b("src")), mkdir("src"), write("src/f1", "run")]);
            host(&scene, &act);
            let done = commit(&scene, &layer, None);
            assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{mode:?} {act:?}: {done:?}");
            let mut left: Vec<_> =
                fs::read_dir(scene.ws().join("src")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            left.sort();
            assert_eq!(left, ["f1"], "{mode:?} {act:?}");
        }
    }
}

/// The directory that a run made afresh was filled, and another name came beside it: it may be another directory.
#[test]
fn a_directory_that_may_be_another_one_is_a_conflict() {
    let scene = Scene::new(LayerMode::Root, &src());
    let layer = scene.layer(&[Op::RemoveTree(b("src")), mkdir("src"), write("src/new", "run")]);
    host(&scene, &[write("src/more", "user"), write("beside", "user")]);
    let done = commit(&scene, &layer, None);
    assert_eq!(conflicts(&done), ["src/f1", "src/f2", "src/in", "src/more"], "{done:?}");
    has_all(&scene, "src", "conflict");
}

/// An ordinary user's layer says which directory is new, also where the one above was exchanged and then filled.
#[test]
fn a_directory_in_an_exchanged_one_is_not_written_over() {
    let other = [mkdir("other"), mkdir("other/lib"), write("other/lib/f1", "user")];
    let base = [&[mkdir("d"), write("d/old", "old")][..], &other].concat();
    let scene = Scene::new(LayerMode::User, &base);
    let layer = scene.layer(&[mkdir("d/lib"), write("d/lib/f1", "run")]);
    host(&scene, &[common::rename("d", "away"), common::rename("other", "d"), write("d/more", "user")]);
    let done = commit(&scene, &layer, None);
    assert_eq!(conflicts(&done), ["d/lib/f1"], "{done:?}");
    assert_eq!(text(&scene.ws().join("d/lib/f1")), "user");
}

/// The rest of a layer is decided after another process worked in the directory that its first part made.
#[test]
fn the_rest_of_a_new_directory_comes_after_the_host_wrote_to_it() {
    for mode in MODES {
        let scene = Scene::new(mode, &src());
        let layer = scene.layer(&[mkdir("lib"), write("lib/a", "run"), mkdir("lib/in"), write("lib/in/b", "run")]);
        let done = commit(&scene, &layer, Some(&["lib/a"]));
        assert!(done.conflicts.is_empty() && !done.parked.is_empty(), "{mode:?}: {done:?}");
        drop(layer);
        wait_for_tick(scene.dir.path());
        host(&scene, &[write("lib/of-the-host", "host")]);
        let layer = common::reopen(&scene.path("layers"));
        let done = commit(&scene, &layer, None);
        assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{mode:?}: {done:?}");
        for (name, wanted) in [("a", "run"), ("in/b", "run"), ("of-the-host", "host")] {
            assert_eq!(text(&scene.ws().join("lib").join(name)), wanted, "{mode:?} {name}");
        }
    }
}

/// The directories of a user, one in the other, that are older than the run, and come to the place `dist` later. The
/// deepest has a file of the name that the run uses too.
fn parts_scene(mode: LayerMode, depth: usize) -> (Scene, String, Vec<Op>) {
    let all = ["dist", "dist/js", "dist/js/in"];
    let place = all[depth - 1].to_owned();
    let older = |path: &str| path.replacen("dist", "other", 1);
    let mut base: Vec<Op> = all[..depth].iter().map(|path| mkdir(&older(path))).collect();
    base.extend([
        write(&format!("{}/main", older(&place)), "user"),
        write(&format!("{}/mine", older(&place)), "user"),
        write(&format!("{}/.envrc", older(&place)), "user"),
        mkdir("d"),
        write("d/text", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
    ]);
    let made = all[..depth].iter().map(|path| mkdir(path)).collect();
    (Scene::new(mode, &base), place, made)
}

fn is_parted(scene: &Scene, place: &str, what: &str) {
    for (name, wanted) in [("main", "user"), ("mine", "user"), (".envrc", "user")] {
        assert_eq!(text(&scene.ws().join(place).join(name)), wanted, "{what}: {name}");
    }
}

#[test]
fn accepts_in_parts_write_over_no_file_that_came() {
    for mode in MODES {
        for depth in 1..=3 {
            for part in ["new", "sub/new", "above", "d/other"] {
                let what = format!("{mode:?} {depth} {part}");
                let (scene, place, mut run) = parts_scene(mode, depth);
                let file = |name: &str| write(&format!("{place}/{name}"), "run");
                run.extend([file("main"), file("new"), mkdir(&format!("{place}/sub")), file("sub/new")]);
                run.extend([write("dist/above", "run"), write("d/other", "run")]);
                let layer = scene.layer(&run);
                host(&scene, &[common::rename("other", "dist")]);
                let part = match part {
                    "above" => "dist/above".to_owned(),
                    "d/other" => part.to_owned(),
                    _ => format!("{place}/{part}"),
                };
                let done = commit(&scene, &layer, Some(&[&part]));
                assert!(done.conflicts.is_empty(), "{what}: {done:?}");
                assert_eq!(text(&scene.ws().join(&part)), "run", "{what}");
                drop(layer);
                wait_for_tick(scene.dir.path());
                let main = format!("{place}/main");
                for only in [None, Some(&[&*main][..])] {
                    let done = commit(&scene, &common::reopen(&scene.path("layers")), only);
                    assert_eq!(conflicts(&done), [&*main], "{what}: {done:?}");
                    is_parted(&scene, &place, &what);
                }
                // The twin: what the run alone has comes, in one part and then in another.
                let (new, sub) = (format!("{place}/new"), format!("{place}/sub"));
                for rest in [vec![&*new], vec![&*sub, "dist/above", "d/other"]] {
                    let done = commit(&scene, &common::reopen(&scene.path("layers")), Some(&rest));
                    assert!(done.conflicts.is_empty(), "{what}: {done:?}");
                }
                for name in [&new, &format!("{sub}/new"), "dist/above"] {
                    assert_eq!(text(&scene.ws().join(name)), "run", "{what}: {name}");
                }
                let done = commit(&scene, &common::reopen(&scene.path("layers")), None);
                assert_eq!(conflicts(&done), [&*main], "{what}: {done:?}");
                is_parted(&scene, &place, &what);
            }
        }
    }
}

#[test]
fn a_protected_file_that_came_stays_when_the_rest_is_accepted() {
    for mode in MODES {
        for depth in 1..=3 {
            let what = format!("{mode:?} {depth}");
            let (scene, place, mut run) = parts_scene(mode, depth);
            run.extend([write(&format!("{place}/new"), "run"), write(&format!("{place}/.envrc"), "run")]);
            let layer = scene.layer(&run);
            host(&scene, &[common::rename("other", "dist")]);
            let done = commit(&scene, &layer, None);
            assert!(done.conflicts.is_empty() && done.parked.len() == 1, "{what}: {done:?}");
            assert_eq!(text(&scene.ws().join(&place).join("new")), "run", "{what}");
            drop(layer);
            let layer = common::reopen(&scene.path("layers"));
            let rules = Rules { accept_protected: true, ..Rules::default() };
            let done = layer.commit(&leased(&scene), &rules).unwrap();
            assert_eq!(conflicts(&done), [format!("{place}/.envrc")], "{what}: {done:?}");
            is_parted(&scene, &place, &what);
        }
    }
}

#[test]
fn hunks_of_another_file_bring_no_file_over_one_that_came() {
    for mode in MODES {
        for depth in 1..=3 {
            let what = format!("{mode:?} {depth}");
            let (scene, place, mut run) = parts_scene(mode, depth);
            let main = format!("{place}/main");
            run.extend([write(&main, "run"), write("d/text", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n")]);
            let layer = scene.layer(&run);
            layer.park(&scene.workspace(), &Rules::default()).unwrap();
            drop(layer);
            host(&scene, &[common::rename("other", "dist")]);
            let options = DiffOptions { context: 1, ..DiffOptions::default() };
            let accept = |path: &str| {
                let choice = Choice { path: &path.into(), hunks: &[0], seen: None, options: &options };
                common::reopen(&scene.path("layers")).accept_hunks(&leased(&scene), &Rules::default(), &choice).unwrap()
            };
            assert_eq!(conflicts(&accept(&main)), [&*main], "{what}");
            let done = accept("d/text");
            assert!(done.conflicts.is_empty(), "{what}: {done:?}");
            assert_eq!(text(&scene.ws().join("d/text")), "one\n2\n3\n4\n5\n6\n7\n8\n9\n", "{what}");
            assert_eq!(conflicts(&accept(&main)), [&*main], "{what}");
            let done = commit(&scene, &common::reopen(&scene.path("layers")), None);
            assert_eq!(conflicts(&done), [&*main], "{what}: {done:?}");
            is_parted(&scene, &place, &what);
        }
    }
}

/// The marks of an ordinary user's layer are others after an accept of a part; the first answer counts.
#[test]
fn a_directory_in_an_exchanged_one_stays_in_parts_too() {
    for part in ["d/lib/in/new", "d/lib/new", "d/new", "e/new"] {
        let other = [mkdir("other"), mkdir("other/lib"), mkdir("other/lib/in"), write("other/lib/in/f1", "user")];
        let base = [&[mkdir("d"), write("d/old", "old"), mkdir("e")][..], &other].concat();
        let scene = Scene::new(LayerMode::User, &base);
        let run = [mkdir("d/lib"), mkdir("d/lib/in"), write("d/lib/in/f1", "run"), write("d/lib/in/new", "run")];
        let further = [write("d/lib/new", "run"), write("d/new", "run"), write("e/new", "run")];
        let layer = scene.layer(&[&run[..], &further].concat());
        host(&scene, &[common::rename("d", "away"), common::rename("other", "d"), write("d/more", "user")]);
        let done = commit(&scene, &layer, Some(&[part]));
        assert!(done.conflicts.is_empty(), "{part}: {done:?}");
        drop(layer);
        let done = commit(&scene, &common::reopen(&scene.path("layers")), None);
        assert_eq!(conflicts(&done), ["d/lib/in/f1"], "{part}: {done:?}");
        assert_eq!(text(&scene.ws().join("d/lib/in/f1")), "user", "{part}");
    }
}

/// The harmless twin: nothing came, and the parts of what the run made come one after the other.
#[test]
fn the_parts_of_a_directory_of_the_run_alone_come_one_by_one() {
    for mode in MODES {
        for (base, made) in [
            (vec![], vec![mkdir("dist"), mkdir("dist/js")]),
            (vec![mkdir("dist")], vec![mkdir("dist/js")]),
            (vec![mkdir("dist"), mkdir("dist/js"), write("dist/js/a", "old")], vec![]),
        ] {
            let what = format!("{mode:?} {base:?}");
            let scene = Scene::new(mode, &base);
            let files = ["dist/js/a", "dist/js/b", "dist/c"].map(|path| write(path, "run"));
            let layer = scene.layer(&[&made[..], &files].concat());
            let done = commit(&scene, &layer, Some(&["dist/js/b"]));
            assert!(done.conflicts.is_empty(), "{what}: {done:?}");
            drop(layer);
            for only in [Some(&["dist/c"][..]), None] {
                wait_for_tick(scene.dir.path());
                let done = commit(&scene, &common::reopen(&scene.path("layers")), only);
                assert!(done.conflicts.is_empty(), "{what}: {done:?}");
            }
            assert_eq!(scene.found(), scene.wanted(), "{what}");
        }
    }
}
