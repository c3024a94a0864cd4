//! Comparisons of a commit that the model test does not notice when they are left out: here they are needed.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased};
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Abandoned, Comparison, Faults, LayerMode, Outside, Rules, abandon};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Calls `act` once, before the first call after the decision, or after the commit was marked done.
fn once(scene: &Scene, done: bool, act: impl FnOnce() + Send + 'static) -> Faults {
    let journal = scene.path(if done { "layers/run/journal.done" } else { "layers/run/journal" });
    let act = Mutex::new(Some(act));
    Faults::default().between(Arc::new(move |_| {
        if journal.exists()
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
    }))
}

#[test]
fn without_the_identity_of_a_directory_another_one_gets_the_file() {
    for (left_out, arrives) in [(&[][..], false), (&[Comparison::Parent][..], true)] {
        let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), Op::Write(b("d/old"), "old".into())]);
        let mut layer = scene.layer(&[Op::Write(b("d/new"), "new".into())]);
        let ws = scene.ws();
        let faults = once(&scene, false, move || {
            fs::rename(ws.join("d"), ws.join("moved")).unwrap();
            fs::create_dir(ws.join("d")).unwrap();
        });
        layer.set_faults(faults.without_comparisons(left_out));
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert_eq!(scene.ws().join("d/new").exists(), arrives, "{left_out:?}: {result:?}");
        assert_eq!(result.conflicts.is_empty(), arrives, "{left_out:?}: {result:?}");
    }
}

#[test]
fn without_a_look_at_late_entries_a_deleted_directory_takes_them_along() {
    for (left_out, stays) in [(&[][..], true), (&[Comparison::InsideRemoval][..], false)] {
        let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), Op::Write(b("d/x"), "old".into())]);
        let mut layer = scene.layer(&[Op::RemoveTree(b("d"))]);
        let dir = fs::File::open(scene.ws().join("d")).unwrap();
        let saved = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&saved);
        let faults = once(&scene, true, move || {
            use std::os::fd::AsRawFd as _;
            let at = format!("/proc/self/fd/{}/late", dir.as_raw_fd());
            done.store(fs::write(at, "typed by a person").is_ok(), Ordering::SeqCst);
        });
        layer.set_faults(faults.without_comparisons(left_out));
        let result = layer.commit(&scene.workspace(), &Rules::default()).unwrap();
        assert!(saved.load(Ordering::SeqCst));
        let is_named = result.conflicts.iter().any(|one| one.beside.is_some());
        assert_eq!(is_named, stays, "{left_out:?}: {result:?}");
    }
}

#[test]
fn without_a_look_at_open_files_their_commit_is_not_parked() {
    for (left_out, waits) in [(&[][..], true), (&[Comparison::OpenElsewhere][..], false)] {
        let scene = Scene::new(LayerMode::Root, &[Op::Write(b("log"), "old".into()), Op::Write(b("x"), "old".into())]);
        let mut layer = scene.layer(&[Op::Write(b("log"), "new".into()), Op::Write(b("x"), "new".into())]);
        let writer = fs::OpenOptions::new().append(true).open(scene.ws().join("log")).unwrap();
        layer.set_faults(Faults::default().without_comparisons(left_out));
        let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        drop(writer);
        let arrived = fs::read_to_string(scene.ws().join("x")).unwrap() == "new";
        assert_eq!(arrived, !waits, "{left_out:?}: {result:?}");
        // The look at what came out holds the file that is written to, also without this one.
        assert_eq!(fs::read_to_string(scene.ws().join("log")).unwrap(), "old", "{left_out:?}");
        assert!(result.conflicts.iter().any(|one| one.outside == Outside::Open), "{left_out:?}: {result:?}");
    }
}

/// A commit that died when `at` had arrived.
fn killed_when(scene: &Scene, ops: &[Op], at: &str, text: &str) {
    let mut layer = scene.layer(ops);
    let (arrived, journal, text) = (scene.ws().join(at), scene.path("layers/run/journal"), text.to_owned());
    let once = Mutex::new(Some(()));
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        let is_there = journal.exists() && fs::read_to_string(&arrived).is_ok_and(|now| now == text);
        if is_there && once.lock().unwrap().take().is_some() {
            std::panic::panic_any("crash");
        }
    })));
    let workspace = leased(scene);
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
}

#[test]
fn without_a_look_at_what_is_withdrawn_its_edits_leave_with_it() {
    for (left_out, stays) in [(&[][..], true), (&[Comparison::AsPut][..], false)] {
        let scene = Scene::new(LayerMode::Root, &[Op::Write(b("a"), "old".into()), Op::Write(b("z"), "old".into())]);
        killed_when(&scene, &[Op::Write(b("a"), "run".into()), Op::Write(b("z"), "run".into())], "a", "run");
        fs::write(scene.ws().join("a"), "typed by a person").unwrap();
        let faults = Faults::default().without_comparisons(left_out);
        roll_back_with(&scene.path("layers"), "run", &leased(&scene), &faults).unwrap();
        let now = fs::read_to_string(scene.ws().join("a")).unwrap();
        assert_eq!(now == "typed by a person", stays, "{left_out:?}: {now}");
    }
}

#[test]
fn without_a_doubt_about_what_was_withdrawn_its_directory_is_removed() {
    for (left_out, is_kept) in [(&[][..], true), (&[Comparison::Doubt][..], false)] {
        let scene = Scene::new(LayerMode::Root, &[Op::Write(b("z"), "old".into())]);
        let ops = [Op::Mkdir(b("src")), Op::Write(b("src/main.c"), "run".into()), Op::Write(b("z"), "run".into())];
        killed_when(&scene, &ops, "src/main.c", "run");
        let faults = Faults::default().without_comparisons(left_out);
        roll_back_with(&scene.path("layers"), "run", &leased(&scene), &faults).unwrap();
        let end = abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
        assert_eq!(matches!(end, Abandoned::Removed(None)), !is_kept, "{left_out:?}: {end:?}");
    }
}
