//! Files with several names in a layer of root that is accepted in parts: overlay's index alone has the new version where the run
//! took away the names that it used.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename, write};
use nexus_layer::{CommitState, Committed, Layer, LayerMode, Outside, Rules};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

fn base() -> Vec<Op> {
    let dirs = ["s", "q"].map(|path| Op::Mkdir(b(path)));
    let files = ["a", "c", "s/f", "q/f"].map(|file| write(file, "old"));
    let links = [Op::Link(b("a"), b("twin")), Op::Link(b("s/f"), b("other"))];
    [dirs.to_vec(), files.to_vec(), links.to_vec()].concat()
}

fn commit(scene: &Scene, layer: &Layer, rules: &Rules) -> Committed {
    layer.commit(&scene.workspace(), rules).unwrap()
}

fn except(paths: &[&str]) -> Rules {
    Rules { except: paths.iter().map(|path| b(path).into()).collect(), ..Rules::default() }
}

fn only(path: &str) -> Rules {
    Rules { only: Some(vec![b(path).into()]), ..Rules::default() }
}

fn named(done: &Committed) -> Vec<String> {
    let path = |one: &nexus_layer::Conflict| {
        assert_eq!(one.outside, Outside::Changed, "{done:?}");
        String::from_utf8_lossy(&one.path.0).into_owned()
    };
    done.conflicts.iter().map(path).collect()
}

fn text(scene: &Scene, path: &str) -> String {
    fs::read_to_string(scene.ws().join(path)).unwrap_or_else(|error| error.kind().to_string())
}

/// Saves as many editors do: a new file takes the place of the old one.
fn saved(path: &str) -> Vec<Op> {
    vec![write("tmp", "run"), rename("tmp", path)]
}

#[test]
fn an_edit_of_a_file_with_two_names_holds_up_these_names_alone() {
    for (run, conflicts) in [
        (vec![write("a", "run")], &["a", "twin"][..]),
        (vec![Op::Remove(b("a"))], &["a", "twin"]),
        (vec![write("a", "run"), Op::Remove(b("a"))], &["a", "twin"]),
        (saved("a"), &["a", "twin"]),
        (vec![rename("a", "e")], &["a", "e", "twin"]),
        (vec![write("a", "run"), rename("a", "q/e")], &["a", "q/e", "twin"]),
        (vec![Op::Link(b("a"), b("e"))], &["a", "e", "twin"]),
        (vec![write("a", "run"), Op::Link(b("a"), b("e"))], &["a", "e", "twin"]),
    ] {
        let scene = Scene::new(LayerMode::Root, &base());
        let layer = scene.layer(&[run.clone(), vec![write("c", "run"), write("new", "run")]].concat());
        fs::write(scene.ws().join("twin"), "of the host").unwrap();
        let mut left_out: Vec<String> = Vec::new();
        for _ in 0..4 {
            let done = commit(&scene, &layer, &except(&left_out.iter().map(String::as_str).collect::<Vec<_>>()));
            if done.state == CommitState::Committed {
                break;
            }
            left_out.extend(named(&done));
        }
        left_out.sort();
        left_out.dedup();
        assert!(left_out.iter().all(|path| conflicts.contains(&&**path)), "{run:?}: {left_out:?}");
        assert_eq!(
            ["c", "new", "a", "twin"].map(|path| text(&scene, path)),
            ["run", "run", "of the host", "of the host"]
        );
        // A name that the run made comes with what the run wrote, or not at all.
        let own = if text(&scene, "q/e") == "entity not found" { "e" } else { "q/e" };
        assert!(matches!(text(&scene, own).as_str(), "run" | "old" | "entity not found"), "{run:?}");
        // The rest still waits, and is a conflict.
        drop(layer);
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        let done = commit(&scene, &layer, &Rules::default());
        assert_eq!((done.state, done.conflicts.is_empty()), (CommitState::Parked, false), "{run:?}");
        assert_eq!(["a", "twin"].map(|path| text(&scene, path)), ["of the host", "of the host"]);
    }
}

#[test]
fn a_version_that_the_index_alone_has_stays_when_other_paths_are_accepted() {
    for run in [
        vec![write("a", "run"), Op::Remove(b("a"))],
        vec![write("s/f", "run"), Op::RemoveTree(b("s"))],
        [vec![write("a", "run")], saved("a")].concat(),
        vec![write("a", "run"), Op::Remove(b("a")), write("other", "run"), write("q/f", "run")],
    ] {
        for first in ["c", "q", "new"] {
            let scene = Scene::new(LayerMode::Root, &base());
            let layer = scene.layer(&[run.clone(), vec![write("c", "run"), write("new", "run")]].concat());
            let done = commit(&scene, &layer, &only(first));
            let is_there = first != "q" || run.len() == 4;
            assert_eq!(done.state == CommitState::Committed, is_there, "{run:?} {first}: {done:?}");
            drop(layer);
            let inode = |path: &str| fs::metadata(scene.ws().join(path)).map(|meta| meta.ino()).ok();
            assert!(inode("a").is_some() && inode("a") == inode("twin"), "{run:?} {first}");
            let layer = Layer::open(&scene.path("layers"), "run").unwrap();
            let done = commit(&scene, &layer, &Rules::default());
            assert_eq!((done.state, &done.conflicts[..], &done.parked[..]), (CommitState::Committed, &[][..], &[][..]));
            assert_eq!(scene.found(), scene.wanted(), "{run:?} {first}");
        }
    }
}

/// Without the name that goes, no later command would find what the index has.
#[test]
fn the_last_name_of_a_version_in_the_index_goes_with_it_alone() {
    let scene = Scene::new(LayerMode::Root, &base());
    let layer = scene.layer(&[write("s/f", "run"), Op::RemoveTree(b("s")), write("c", "run")]);
    let done = commit(&scene, &layer, &except(&["s/f"]));
    assert_eq!((done.state, &done.conflicts[..]), (CommitState::Parked, &[][..]));
    assert_eq!(["c", "s/f", "other"].map(|path| text(&scene, path)), ["old", "old", "old"]);
    let done = commit(&scene, &layer, &except(&["s"]));
    assert_eq!(done.state, CommitState::Committed);
    assert_eq!(["c", "s/f", "other"].map(|path| text(&scene, path)), ["run", "old", "old"]);
}
