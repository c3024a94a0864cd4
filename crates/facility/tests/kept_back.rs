//! What a commit holds in its staging directory when another process is in its way: none of it is destroyed.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, run_operations_of_parent};
use nexus_facility::{Faults, Layer, LayerMode, Rules, Workspace};
use std::fs;
use std::sync::{Arc, Mutex};

#[test]
#[ignore = "the child of the other tests"]
fn child_runs_operations() {
    run_operations_of_parent();
}

fn b(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn write(path: &str, text: &str) -> Op {
    Op::Write(b(path), text.into())
}

fn leased(scene: &Scene) -> Workspace {
    Workspace::open(&scene.ws()).unwrap().with_leases(nexus_jail::lease::read_lease)
}

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
