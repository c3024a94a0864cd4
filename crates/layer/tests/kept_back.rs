//! A commit whose way another process blocks destroys nothing that is in its staging directory.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, dying, leased, snapshot, write};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Faults, Layer, LayerMode, RecoverError, Recovered, Rules, recover};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Calls `act` once, before the first call of the commit for which `when` holds.
fn once(when: impl Fn() -> bool + Send + Sync + 'static, act: impl FnOnce() + Send + 'static) -> Faults {
    let act = Mutex::new(Some(act));
    Faults::default().between(Arc::new(move |_| {
        if when()
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
    }))
}

#[test]
fn a_renamed_directory_whose_new_place_is_taken_is_not_lost() {
    for (flags, both) in [(true, false), (false, false), (true, true), (false, true)] {
        let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), write("d/precious", "of the user")]);
        let mut layer = scene.layer(&[Op::Rename(b("d"), b("e")), write("e/new", "run")]);
        let (ws, gone) = (scene.ws(), scene.ws().join("d"));
        let taken = move || {
            fs::write(ws.join("e"), "came first").unwrap();
            if both {
                fs::write(ws.join("d"), "came second").unwrap();
            }
        };
        let mut faults = once(move || !gone.exists(), taken);
        if !flags {
            faults = faults.without_rename_flags();
        }
        layer.set_faults(faults);
        let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        let read = |path: &str| fs::read_to_string(scene.ws().join(path)).unwrap();
        assert_eq!(read("e"), "came first");
        let [conflict] = &result.conflicts[..] else { panic!("{result:?}") };
        assert_eq!(
            (conflict.path.as_path(), conflict.beside.is_some()),
            (std::path::Path::new("e"), both),
            "{result:?}"
        );
        let beside = conflict.beside.as_ref().map_or("d".to_owned(), |at| at.as_path().display().to_string());
        assert_eq!(read(&format!("{beside}/precious")), "of the user", "{result:?}");
        if both {
            assert_eq!(read("d"), "came second");
        }
        drop(layer);
        // What waits is still the rename, and goes once its place is free.
        fs::remove_file(scene.ws().join("e")).unwrap();
        let layer = Layer::open(&scene.path("layers"), "run").unwrap();
        let waits = layer.changes(&leased(&scene), &Rules::default()).unwrap();
        assert!(waits.changes.iter().any(|one| one.path.as_path() == std::path::Path::new("e/new")), "{waits:?}");
    }
}

#[test]
fn a_directory_renamed_into_one_that_is_kept_back_is_not_lost() {
    let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), write("d/precious", "of the user")]);
    let mut layer = scene.layer(&[Op::Mkdir(b("n")), Op::Rename(b("d"), b("n/d"))]);
    let (ws, gone) = (scene.ws(), scene.ws().join("d"));
    layer.set_faults(once(move || !gone.exists(), move || fs::write(ws.join("n"), "came first").unwrap()));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!(fs::read_to_string(scene.ws().join("n")).unwrap(), "came first");
    assert_eq!(fs::read_to_string(scene.ws().join("d/precious")).unwrap(), "of the user", "{result:?}");
}

#[test]
fn a_name_like_that_of_a_side_is_the_users_own() {
    for again in [false, true] {
        let scene = Scene::new(LayerMode::Root, &[write("f", "old f"), write("side-0", "old side")]);
        let mut layer =
            scene.layer(&[write("f", "run f"), write(".nexus-side-f", "run's own"), write("side-1", "run")]);
        fs::write(scene.ws().join(".nexus-side-f2"), "user's own").unwrap();
        let journal = scene.path("layers/run/journal");
        let crash = once(move || again && journal.exists(), || std::panic::panic_any("crash"));
        layer.set_faults(crash.without_rename_flags());
        let workspace = leased(&scene);
        let rules = Rules { accept_protected: true, ..Rules::default() };
        if catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &rules).unwrap())).is_err() {
            drop(layer);
            recover(&scene.path("layers"), "run", &workspace).unwrap();
        }
        let names = [("f", "run f"), (".nexus-side-f", "run's own"), (".nexus-side-f2", "user's own")];
        for (name, text) in names.into_iter().chain([("side-0", "old side"), ("side-1", "run")]) {
            assert_eq!(fs::read_to_string(scene.ws().join(name)).unwrap(), text);
        }
    }
}

fn mixed() -> Scene {
    let files = ["f", "gone", "l1"].map(|file| write(file, &format!("old {file}")));
    let dirs = [Op::Mkdir(b("d")), write("d/x", "old x"), Op::Mkdir(b("t")), write("t/y", "old y")];
    Scene::new(LayerMode::Root, &[&files[..], &dirs].concat())
}

fn mixed_run() -> Vec<Op> {
    vec![
        write("f", "run f"),
        Op::Remove(b("gone")),
        Op::Link(b("l1"), b("l3")),
        Op::Rename(b("d"), b("e")),
        Op::RemoveTree(b("t")),
        write("t", "run t"),
        write("new", "run new"),
    ]
}

/// Each place of a commit, and after it each of the taking back, also in the middle of an exchange of three renames.
#[test]
fn a_taking_back_that_is_killed_anywhere_can_be_repeated() {
    for flags in [true, false] {
        let with = |faults: Faults| if flags { faults } else { faults.without_rename_flags() };
        'commit: for nth in 1.. {
            for second in (1..).step_by(13).map(|at| at + nth % 13) {
                let scene = mixed();
                let mut layer = scene.layer(&mixed_run());
                let old = snapshot(&scene.ws(), true);
                layer.set_faults(with(dying(&scene, nth)));
                let (workspace, origin) = (leased(&scene), layer.origin());
                let done = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default())));
                drop(layer);
                if done.is_ok() || !scene.path("layers/run/journal").exists() {
                    assert!(nth > 15, "only {nth} places");
                    break 'commit;
                }
                let back = |faults: &Faults| roll_back_with(&scene.path("layers"), "run", &workspace, faults).unwrap();
                let first = catch_unwind(AssertUnwindSafe(|| back(&with(dying(&scene, second)))));
                let killed = first.is_err();
                let conflicts = first.unwrap_or_else(|_| back(&with(Faults::default())));
                assert_eq!(conflicts, [], "{flags} {nth} {second}");
                assert_eq!(snapshot(&scene.ws(), true), old, "{flags} {nth} {second}");
                let layer = Layer::adopt(&scene.path("layers"), "run", &origin).unwrap();
                let result = layer.commit(&workspace, &Rules::default()).unwrap();
                assert_eq!(result.conflicts, [], "{flags} {nth} {second}");
                assert_eq!(scene.found(), scene.wanted(), "{flags} {nth} {second}");
                if !killed {
                    break;
                }
            }
        }
    }
}

/// Whatever recovers the layer goes on with the taking back, from each place where it was killed.
#[test]
fn a_killed_taking_back_is_not_turned_round() {
    // Without leases the staging directory stays, which is renamed before the journal goes.
    for (flags, is_leased) in [(true, true), (false, true), (true, false)] {
        let with = |faults: Faults| if flags { faults } else { faults.without_rename_flags() };
        let (mut went_back, mut ended) = (0, false);
        for nth in 1.. {
            let scene = mixed();
            let mut layer = scene.layer(&mixed_run());
            let old = snapshot(&scene.ws(), true);
            let (workspace, origin, layers) =
                (if is_leased { leased(&scene) } else { scene.workspace() }, layer.origin(), scene.path("layers"));
            // Most of it has arrived.
            layer.set_faults(with(dying(&scene, if flags { 30 } else { 40 })));
            assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
            drop(layer);
            assert!(layers.join("run/journal").exists());
            let dying = with(dying(&scene, nth));
            let first = catch_unwind(AssertUnwindSafe(|| roll_back_with(&layers, "run", &workspace, &dying).unwrap()));
            let (is_over, is_marked) = (first.is_ok(), layers.join("run/journal.back").exists());
            let is_decided = layers.join("run/journal").exists();
            match recover_with(&layers, "run", &workspace, &with(Faults::default())).unwrap() {
                Recovered::TakenBack(conflicts) => {
                    assert!(is_marked && is_decided, "{flags} {nth}");
                    assert_eq!(conflicts, [], "{flags} {nth}");
                    went_back += 1;
                }
                // Nothing was taken back yet.
                Recovered::RolledForward(_) => {
                    assert!(is_decided && !is_marked, "{flags} {nth}");
                    continue;
                }
                other => assert!(other == Recovered::Undecided && !is_decided, "{flags} {nth}: {other:?}"),
            }
            assert_eq!(snapshot(&scene.ws(), true), old, "{flags} {nth}");
            let layer = Layer::adopt(&layers, "run", &origin).unwrap();
            // A mark that outlived its journal says nothing about the next commit.
            layer.commit(&workspace, &Rules::default()).unwrap();
            assert_eq!(scene.found(), scene.wanted(), "{flags} {nth}");
            if is_over {
                ended = true;
                break;
            }
        }
        assert!(ended && went_back > 10, "{went_back}");
    }
}

/// Everything in a tree that was ever written by `save`.
fn texts(at: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts(&path, found);
        } else {
            found.push(fs::read_to_string(&path).unwrap());
        }
    }
}

fn save(ws: &Path, name: &str) {
    fs::write(ws.join(".saving"), "saved by a person").unwrap();
    if ws.join(name).is_dir() || fs::rename(ws.join(".saving"), ws.join(name)).is_err() {
        fs::remove_file(ws.join(".saving")).unwrap();
    }
}

/// A person saves a file before a call, and the commit dies before the next one or the one after it.
#[test]
fn a_version_saved_before_any_call_survives_a_crash_after_it() {
    for flags in [true, false] {
        for (number, victim) in ["f", "gone", "new", "l3", "e", "t"].into_iter().enumerate() {
            for nth in (1..).step_by(2).map(|at| at + number as u64 % 2) {
                let forward_first = nth / 2 % 2 == 0;
                let scene = mixed();
                let mut layer = scene.layer(&mixed_run());
                let (ws, journal, calls) = (scene.ws(), scene.path("layers/run/journal"), AtomicU64::new(0));
                let saved = Arc::new(AtomicU64::new(0));
                let has_saved = saved.clone();
                let die = nth + 1 + nth / 4 % 2;
                let faults = Faults::default().between(Arc::new(move |_| {
                    let at = if journal.exists() { calls.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
                    if at == nth {
                        save(&ws, victim);
                        let text = fs::read_to_string(ws.join(victim)).unwrap_or_default();
                        has_saved.store(u64::from(text == "saved by a person"), Ordering::SeqCst);
                    }
                    if at == die {
                        std::panic::panic_any("crash");
                    }
                }));
                let with = |faults: Faults| if flags { faults } else { faults.without_rename_flags() };
                layer.set_faults(with(faults));
                let workspace = leased(&scene);
                let done = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default())));
                let was_killed = done.is_err();
                drop(layer);
                let story = format!("flags {flags}, forward {forward_first}, {victim} before call {nth}");
                let layers = scene.path("layers");
                let forward = || match recover_with(&layers, "run", &workspace, &with(Faults::default())) {
                    Ok(Recovered::RolledForward(done)) => done.conflicts,
                    other => panic!("{story}: {other:?}"),
                };
                let back = || match roll_back_with(&layers, "run", &workspace, &with(Faults::default())) {
                    Ok(conflicts) => conflicts,
                    Err(RecoverError::Applied { .. }) => forward(),
                    Err(error) => panic!("{story}: {error:?}"),
                };
                let conflicts = match done {
                    Ok(done) => done.unwrap().conflicts,
                    Err(_) if forward_first => forward(),
                    Err(_) => back(),
                };
                let mut found = Vec::new();
                texts(&scene.ws(), &mut found);
                let is_there = |text: &str| found.iter().any(|one| one == text);
                assert!(saved.load(Ordering::SeqCst) == 0 || is_there("saved by a person"), "{story}: {conflicts:?}");
                // An entry that no process replaced.
                for text in ["old x", "old l1"] {
                    assert!(is_there(text), "{story}: {text} is lost, {conflicts:?} {found:?}");
                }
                for entry in fs::read_dir(scene.ws()).unwrap() {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    let is_named = conflicts
                        .iter()
                        .any(|one| one.beside.as_ref().is_some_and(|at| at.as_path() == Path::new(&name)));
                    assert!(!name.contains(".nexus-") || is_named, "{story}: {name} is not named: {conflicts:?}");
                }
                if !was_killed {
                    assert!(nth > 15, "only {nth} places");
                    break;
                }
            }
        }
    }
}
