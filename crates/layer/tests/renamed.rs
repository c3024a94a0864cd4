//! A file that the run renamed has its content once. Where its new name is kept back, its old name stays, and what is the
//! only copy of what a commit deleted is never removed with a layer.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, has, leased, rename, write};
use nexus_layer::{
    Abandoned, CommitFinished, CommitState, Faults, Layer, LayerMode, Recovered, Rules, abandon, recover,
};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Calls `act` once, before the call with this number after the decision.
fn at_call(scene: &Scene, nth: u64, act: impl FnOnce() + Send + 'static) -> Faults {
    let (journal, calls, act) = (scene.path("layers/run/journal"), AtomicU64::new(0), Mutex::new(Some(act)));
    Faults::default().between(Arc::new(move |_| {
        if journal.exists()
            && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
    }))
}

/// Operations of the run on files of the user, and the directory that the user moves away meanwhile.
fn stories() -> Vec<(&'static str, Vec<Op>, &'static str)> {
    vec![
        ("a rename", vec![rename("f", "d/f")], "d"),
        ("a rename whose deletion comes first", vec![rename("f", "z/f")], "z"),
        ("a rename and an edit", vec![rename("f", "d/f"), Op::Append(b("d/f"), "more".into())], "d"),
        ("out of a deleted directory", vec![rename("a/g", "d/g"), Op::RemoveTree(b("a"))], "d"),
        ("a new file at the old name", vec![rename("f", "d/f"), write("f", "new")], "d"),
        ("a new file at the old name first", vec![rename("f", "z/f"), write("f", "new")], "z"),
        ("a chain", vec![rename("f", "d/f"), rename("a/g", "f")], "d"),
        ("into a new directory", vec![Op::Mkdir(b("d/n")), rename("f", "d/n/f")], "d"),
        ("over another file", vec![rename("f", "d/x")], "d"),
        ("a directory at the old name", vec![rename("f", "z/f"), Op::Mkdir(b("f")), write("f/y", "new")], "z"),
    ]
}

const OF_THE_USER: [&str; 4] = ["text of f", "text of g", "text of x", "text of y"];

fn scene(mode: LayerMode) -> Scene {
    let dirs = ["a", "d", "z"].map(|dir| Op::Mkdir(b(dir)));
    let files =
        [write("f", "text of f"), write("a/g", "text of g"), write("d/x", "text of x"), write("z/y", "text of y")];
    Scene::new(mode, &[&dirs[..], &files[..]].concat())
}

fn check(scene: &Scene, story: &str) {
    let is_over = story.starts_with("over another file");
    for text in OF_THE_USER {
        // The run's own rename replaced this one.
        let found = has(&scene.ws(), text) || has(&scene.path("layers"), text) || (is_over && text == "text of x");
        assert!(found, "{story}: {text:?} is lost");
    }
}

fn reject(scene: &Scene) {
    abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
}

/// Plays each story on a thread of its own.
fn each(play: impl Fn(LayerMode, &str, &[Op], &'static str) + Sync) {
    std::thread::scope(|scope| {
        for (story, ops, dir) in stories() {
            let play = &play;
            scope.spawn(move || [LayerMode::Root, LayerMode::User].map(|mode| play(mode, story, &ops, dir)));
        }
    });
}

/// Lets the user move the directory away in each place of a commit.
fn moved_away_everywhere(mode: LayerMode, flags: bool, story: &str, ops: &[Op], dir: &'static str) {
    for nth in 1.. {
        let scene = scene(mode);
        let mut layer = scene.layer(ops);
        let (ws, reached) = (scene.ws(), Arc::new(AtomicU64::new(0)));
        let seen = reached.clone();
        let mut faults = at_call(&scene, nth, move || {
            fs::rename(ws.join(dir), ws.join("moved")).unwrap();
            seen.store(1, Ordering::SeqCst);
        });
        if !flags {
            faults = faults.without_rename_flags();
        }
        layer.set_faults(faults);
        layer.commit(&leased(&scene), &Rules::default()).unwrap();
        drop(layer);
        reject(&scene);
        check(&scene, &format!("{story} {mode:?} {nth}"));
        if reached.load(Ordering::SeqCst) == 0 {
            assert!(nth > 5);
            return;
        }
    }
}

#[test]
fn a_rename_that_is_kept_back_loses_nothing_at_a_reject() {
    each(|mode, story, ops, dir| moved_away_everywhere(mode, true, story, ops, dir));
}

#[test]
fn a_rename_kept_back_without_rename_flags_loses_nothing() {
    each(|mode, story, ops, dir| {
        if mode == LayerMode::Root {
            moved_away_everywhere(mode, false, story, ops, dir);
        }
    });
}

fn killed(scene: &Scene, layer: Layer, nth: u64) -> bool {
    let mut layer = layer;
    layer.set_faults(at_call(scene, nth, || std::panic::panic_any("crash")));
    catch_unwind(AssertUnwindSafe(|| layer.commit(&leased(scene), &Rules::default()).unwrap())).is_err()
}

fn recovered(scene: &Scene) -> Option<CommitFinished> {
    match recover(&scene.path("layers"), "run", &leased(scene)).unwrap() {
        Recovered::RolledForward(done) => Some(*done),
        _ => None,
    }
}

#[test]
fn a_rename_kept_back_at_a_recovery_loses_nothing() {
    each(|mode, story, ops, dir| {
        for nth in 1.. {
            let scene = scene(mode);
            if !killed(&scene, scene.layer(ops), nth) {
                assert!(nth > 5);
                break;
            }
            fs::rename(scene.ws().join(dir), scene.ws().join("moved")).unwrap();
            recovered(&scene);
            reject(&scene);
            check(&scene, &format!("{story} {mode:?} {nth}"));
        }
    });
}

#[test]
fn the_old_name_of_a_kept_back_rename_stays_and_waits_with_it() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for (to, dir) in [("d/f", "d"), ("z/f", "z")] {
            let scene = scene(mode);
            assert!(killed(&scene, scene.layer(&[rename("f", to)]), 1));
            fs::rename(scene.ws().join(dir), scene.ws().join("moved")).unwrap();
            let done = recovered(&scene).unwrap();
            assert_eq!(fs::read_to_string(scene.ws().join("f")).unwrap(), "text of f", "{done:?}");
            let waits: Vec<_> = done.parked.iter().map(|one| one.path.as_path().display().to_string()).collect();
            let mut wanted = ["f", to];
            wanted.sort_unstable();
            assert_eq!((waits, done.conflicts.len()), (wanted.map(str::to_owned).to_vec(), 1));
            // Both go once the directory is back.
            fs::rename(scene.ws().join("moved"), scene.ws().join(dir)).unwrap();
            if mode == LayerMode::Root {
                let again = Layer::open(&scene.path("layers"), "run").unwrap();
                let result = again.commit(&leased(&scene), &Rules::default()).unwrap();
                assert_eq!(result.state, CommitState::Committed, "{result:?}");
                assert_eq!(fs::read_to_string(scene.ws().join(to)).unwrap(), "text of f");
                assert!(!scene.ws().join("f").exists());
            }
        }
    }
}

#[test]
fn a_reject_keeps_the_only_copy_of_a_file_accepted_as_deleted() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let scene = scene(mode);
        let layer = scene.layer(&[rename("f", "d/f")]);
        let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
        layer.commit(&leased(&scene), &chosen).unwrap();
        drop(layer);
        assert!(!scene.ws().join("f").exists());
        let Abandoned::Removed(Some(left)) = abandon(&scene.path("layers"), "run", || Ok(())).unwrap() else {
            panic!("{mode:?}: nothing is named")
        };
        assert!(has(left.at.as_path(), "text of f"), "{left:?}");
        assert!(left.why.contains("only copy"), "{left:?}");
    }
}

/// An ordinary user's mark does not name the file, and here the new name is that of another file.
#[test]
fn a_reject_keeps_the_only_copy_that_was_renamed_over_a_file() {
    let over = vec![rename("f", "d/x")];
    let removed_first = vec![Op::Remove(b("d/x")), rename("f", "d/x")];
    let swap = vec![rename("f", "t"), rename("d/x", "f"), rename("t", "d/x")];
    for mode in [LayerMode::Root, LayerMode::User] {
        for (at, run) in [&over, &removed_first, &swap].into_iter().enumerate() {
            let scene = scene(mode);
            let layer = scene.layer(run);
            let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
            layer.commit(&leased(&scene), &chosen).unwrap();
            drop(layer);
            assert_ne!(fs::read_to_string(scene.ws().join("f")).ok().as_deref(), Some("text of f"), "{mode:?} {at}");
            let Abandoned::Removed(Some(left)) = abandon(&scene.path("layers"), "run", || Ok(())).unwrap() else {
                panic!("{mode:?} {at}: nothing is named")
            };
            assert!(has(left.at.as_path(), "text of f"), "{mode:?} {at}: {left:?}");
        }
    }
}

/// An ordinary user's mark does not name the file, and an edit takes the time by which the file was known.
#[test]
fn a_reject_keeps_the_only_copy_that_was_renamed_and_edited() {
    let edits = [Op::Append(b("d/x"), "more".into()), Op::SetXattr(b("d/x"), "v".into())];
    let over = |edit: &Op| vec![rename("f", "d/x"), edit.clone()];
    let swap = |edit: &Op| vec![rename("f", "t"), rename("d/x", "f"), rename("t", "d/x"), edit.clone()];
    for mode in [LayerMode::Root, LayerMode::User] {
        for (at, run) in edits.iter().flat_map(|edit| [over(edit), swap(edit)]).enumerate() {
            let scene = scene(mode);
            let layer = scene.layer(&run);
            let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
            layer.commit(&leased(&scene), &chosen).unwrap();
            drop(layer);
            let Abandoned::Removed(Some(left)) = abandon(&scene.path("layers"), "run", || Ok(())).unwrap() else {
                panic!("{mode:?} {at}: nothing is named")
            };
            assert!(has(left.at.as_path(), "text of f"), "{mode:?} {at}: {left:?}");
        }
    }
}

/// Overlay gives a copy of a file with several names no mark in an ordinary user's layer.
#[test]
fn a_reject_keeps_the_only_copy_of_a_file_that_had_several_names() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let base = [Op::Write(b("a"), "text of a".into()), Op::Link(b("a"), b("a2"))];
        let scene = Scene::new(mode, &base);
        let layer = scene.layer(&[rename("a", "b"), Op::Remove(b("a2"))]);
        let chosen = Rules { only: Some(vec![b("a").into(), b("a2").into()]), ..Rules::default() };
        layer.commit(&leased(&scene), &chosen).unwrap();
        drop(layer);
        let left = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
        if has(&scene.ws(), "text of a") {
            continue;
        }
        let Abandoned::Removed(Some(left)) = left else { panic!("{mode:?}: nothing is named") };
        assert!(has(left.at.as_path(), "text of a"), "{mode:?}: {left:?}");
    }
}

#[test]
fn an_edited_file_is_no_only_copy_where_only_edits_were_accepted() {
    for mode in [LayerMode::Root, LayerMode::User] {
        let scene = scene(mode);
        let layer = scene.layer(&[Op::Append(b("f"), "more".into()), Op::Append(b("d/x"), "more".into())]);
        let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
        layer.commit(&leased(&scene), &chosen).unwrap();
        drop(layer);
        assert_eq!(abandon(&scene.path("layers"), "run", || Ok(())).unwrap(), Abandoned::Removed(None), "{mode:?}");
    }
}

/// The edited file arrives later, so that nothing is left to keep.
#[test]
fn an_edited_file_that_arrived_later_is_no_only_copy() {
    let scene = scene(LayerMode::User);
    let layer = scene.layer(&[Op::Remove(b("f")), Op::Append(b("d/x"), "more".into())]);
    let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
    layer.commit(&leased(&scene), &chosen).unwrap();
    drop(layer);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!((result.state, result.conflicts, result.left), (CommitState::Committed, vec![], vec![]));
    assert!(!scene.path("layers/run").exists() && !scene.path("layers/.kept").exists());
}

#[test]
fn a_file_with_another_mode_is_no_only_copy() {
    let scene = Scene::new(LayerMode::User, &[write("f", "text"), write("x", "a longer text")]);
    let layer = scene.layer(&[Op::Remove(b("f")), Op::Chmod(b("x"), 0o600)]);
    let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
    layer.commit(&leased(&scene), &chosen).unwrap();
    drop(layer);
    assert_eq!(abandon(&scene.path("layers"), "run", || Ok(())).unwrap(), Abandoned::Removed(None));
}

#[test]
fn a_layer_whose_only_copies_arrived_later_is_removed() {
    let scene = scene(LayerMode::Root);
    let layer = scene.layer(&[rename("f", "d/f")]);
    let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
    layer.commit(&leased(&scene), &chosen).unwrap();
    drop(layer);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!((result.state, result.left.len()), (CommitState::Committed, 0), "{result:?}");
    assert!(!scene.path("layers/run").exists() && !scene.path("layers/.kept").exists());
    assert_eq!(fs::read_to_string(scene.ws().join("d/f")).unwrap(), "text of f");
}

/// The layer lies on another file system than the workspace, so that copies arrive.
#[test]
fn a_copied_layer_whose_only_copies_arrived_is_removed() {
    let into_new = vec![Op::Mkdir(b("d/n")), rename("f", "d/n/f")];
    let swap = vec![rename("f", "t"), rename("a/g", "f"), rename("t", "a/g")];
    let new_at_old = vec![rename("f", "d/f"), write("f", "new")];
    for (run, to) in [(vec![rename("f", "d/f")], "d/f"), (into_new, "d/n/f"), (swap, "a/g"), (new_at_old, "d/f")] {
        let (scene, other) = (scene(LayerMode::Root), tempfile::tempdir_in("/dev/shm").unwrap());
        let layers = scene.path("layers");
        fs::remove_dir(&layers).unwrap();
        std::os::unix::fs::symlink(other.path(), &layers).unwrap();
        let layer = scene.layer(&run);
        let chosen = Rules { only: Some(vec![b("f").into()]), ..Rules::default() };
        layer.commit(&leased(&scene), &chosen).unwrap();
        drop(layer);
        assert!(layers.join("run/only-copies.json").exists(), "{to}: nothing was noted");
        let layer = Layer::open(&layers, "run").unwrap();
        let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        assert_eq!((result.state, result.left), (CommitState::Committed, vec![]), "{to}: {:?}", result.conflicts);
        assert!(!layers.join("run").exists() && !layers.join(".kept").exists(), "{to}");
        assert_eq!(fs::read_to_string(scene.ws().join(to)).unwrap(), "text of f");
    }
}
