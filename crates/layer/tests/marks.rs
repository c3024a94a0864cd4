//! A commit takes overlay's marks off what it brings. Where that stays in the layer after all, the next accept and the next
//! reject know its only copies and its files with several names as before.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, dying, has, leased, rename, write};
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{
    CommitState, Committed, Faults, Layer, LayerMode, Phase, Recovered, Rules, abandon, recover, roll_back,
};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A parked layer of a run that renamed the only file `a`, with the run's other operations.
fn renamed(mode: LayerMode, over: bool) -> Scene {
    let mut base = vec![write("a", "text of a"), write("x", "old x")];
    base.extend(over.then(|| write("b", "a longer text of b")));
    let scene = Scene::new(mode, &base);
    let layer = scene.layer(&[rename("a", "b"), write("x", "new x")]);
    layer.park(&leased(&scene), &Rules::default()).unwrap();
    scene
}

fn open(scene: &Scene) -> Layer {
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    layer.note_shown().unwrap();
    layer
}

fn only(path: Option<&str>) -> Rules {
    Rules { only: path.map(|path| vec![b(path).into()]), ..Rules::default() }
}

fn accept(scene: &Scene, path: Option<&str>) -> Committed {
    open(scene).commit(&leased(scene), &only(path)).unwrap()
}

/// The deletion of `a` is accepted and the rest rejected: the text is somewhere.
fn accept_then_reject(scene: &Scene, case: &str) {
    if scene.path("layers/run").exists() && scene.ws().join("a").exists() {
        accept(scene, Some("a"));
    }
    abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
    assert!(has(&scene.ws(), "text of a") || has(&scene.path("layers"), "text of a"), "{case}: a is lost");
}

#[test]
fn an_only_copy_stays_one_after_a_killed_way_back() {
    for (mode, part) in
        [LayerMode::Root, LayerMode::User].into_iter().flat_map(|mode| [(mode, Some("a")), (mode, None)])
    {
        let mut places = 0;
        for nth in 1.. {
            let scene = renamed(mode, nth % 2 == 0);
            let (layers, workspace) = (scene.path("layers"), leased(&scene));
            let mut layer = open(&scene);
            layer.set_faults(dying(&scene, nth));
            let died = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &only(part)).unwrap())).is_err();
            drop(layer);
            if !died {
                break;
            }
            if !layers.join("run/journal").exists() {
                recover(&layers, "run", &workspace).unwrap();
                continue;
            }
            places += 1;
            let back = dying(&scene, 2 + nth % 5);
            let back = catch_unwind(AssertUnwindSafe(|| roll_back_with(&layers, "run", &workspace, &back).unwrap()));
            assert!(back.is_err(), "{mode:?} {part:?} {nth}");
            let found = recover(&layers, "run", &workspace).unwrap();
            let case = format!("{mode:?} {part:?} {nth}: {found:?}");
            if matches!(found, Recovered::TakenBack(_)) {
                assert_eq!(fs::read_to_string(scene.ws().join("a")).unwrap(), "text of a", "{case}");
                accept_then_reject(&scene, &case);
            }
        }
        assert!(places > 4, "only {places} places");
    }
}

/// One call fails twice, the commit is taken back in the same process, and its layer waits.
#[test]
fn an_only_copy_stays_one_after_a_commit_that_failed() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for (part, over) in [(None, false), (None, true), (Some("a"), false), (Some("a"), true), (Some("b"), true)] {
            let scene = renamed(mode, over);
            let mut layer = open(&scene);
            layer.set_faults(Faults::failing(Phase::SyncWorkspace));
            layer.commit(&leased(&scene), &only(part)).unwrap_err();
            drop(layer);
            assert_eq!(roll_back(&scene.path("layers"), "run", &leased(&scene)).unwrap(), []);
            accept_then_reject(&scene, &format!("{mode:?} {part:?} {over}"));
        }
    }
}

/// Another process makes the new name its own after the marks are off, so that the path is kept back.
#[test]
fn an_only_copy_stays_one_when_its_new_name_is_kept_back() {
    for (mode, over) in [LayerMode::Root, LayerMode::User].into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        for flags in [true, false] {
            let mut kept = 0;
            for nth in 1.. {
                let scene = renamed(mode, over);
                let (journal, b, ws) = (scene.path("layers/run/journal"), scene.ws().join("b"), scene.ws());
                let (calls, reached) = (AtomicU64::new(0), Arc::new(Mutex::new(false)));
                let seen = reached.clone();
                let mut faults = Faults::default().between(Arc::new(move |_| {
                    if journal.exists() && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                        fs::write(ws.join("mine"), "mine").unwrap();
                        fs::rename(ws.join("mine"), &b).unwrap();
                        *seen.lock().unwrap() = true;
                    }
                }));
                if !flags {
                    faults = faults.without_rename_flags();
                }
                let mut layer = open(&scene);
                layer.set_faults(faults);
                let result = layer.commit(&leased(&scene), &only(Some("b"))).unwrap();
                drop(layer);
                if !*reached.lock().unwrap() {
                    break;
                }
                if result.conflicts.is_empty() {
                    continue;
                }
                kept += 1;
                let case = format!("{mode:?} over {over}, flags {flags}, {nth}: {result:?}");
                fs::rename(scene.ws().join("b"), scene.ws().join("away")).unwrap();
                if over && !scene.ws().join("b").exists() {
                    fs::write(scene.ws().join("b"), "a longer text of b").unwrap();
                }
                accept_then_reject(&scene, &case);
            }
            assert!(kept > 0, "{mode:?} {over} {flags}");
        }
    }
}

/// A file with two names is one file before and after.
#[test]
fn two_names_of_a_file_stay_one_after_a_way_back() {
    let mut places = 0;
    for nth in 1.. {
        let scene = Scene::new(LayerMode::Root, &[write("1", "old"), Op::Link(b("1"), b("1b")), write("2", "old")]);
        let layer = scene.layer(&[write("1", "new"), write("2", "new")]);
        layer.park(&leased(&scene), &Rules::default()).unwrap();
        drop(layer);
        let (layers, workspace) = (scene.path("layers"), leased(&scene));
        let mut layer = open(&scene);
        layer.set_faults(dying(&scene, nth));
        if let Ok(done) = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()).unwrap())) {
            assert!(done.conflicts.is_empty());
            break;
        }
        drop(layer);
        if !layers.join("run/journal").exists() {
            continue;
        }
        places += 1;
        assert_eq!(roll_back(&layers, "run", &workspace).unwrap(), [], "{nth}");
        let result = accept(&scene, None);
        assert_eq!((result.state, result.conflicts), (CommitState::Committed, vec![]), "{nth}");
        let inode = |name: &str| fs::metadata(scene.ws().join(name)).unwrap().ino();
        assert_eq!(fs::read_to_string(scene.ws().join("1b")).unwrap(), "new", "{nth}");
        assert_eq!(inode("1"), inode("1b"), "{nth}");
    }
    assert!(places > 4, "only {places} places");
}
