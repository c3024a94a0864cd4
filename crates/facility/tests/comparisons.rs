//! Comparisons of a commit that the model test does not notice when they are left out: here they are needed.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, run_operations_of_parent};
use nexus_facility::{Comparison, Faults, LayerMode, Rules};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

fn b(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

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
