//! A directory that the run renamed is on its way when its step is kept back: it comes home with everything in it, the
//! rename waits, and goes once nothing is in its way.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, write};
use nexus_layer::{CommitError, Committed, Faults, Layer, LayerMode, Recovered, Rules, recover};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// The directory `d`, which the run moved to `sub/e`, where it wrote another file.
fn renamed() -> (Scene, Layer) {
    let scene = Scene::new(LayerMode::Root, &[Op::Mkdir(b("d")), Op::Mkdir(b("sub")), write("d/f", "precious")]);
    let layer = scene.layer(&[Op::Rename(b("d"), b("sub/e")), write("sub/e/new", "run")]);
    (scene, layer)
}

/// The moment at which the directory is on its way.
fn on_its_way(scene: &Scene) -> impl Fn() -> bool + Send + Sync + use<> {
    let (journal, old, new) = (scene.path("layers/run/journal"), scene.ws().join("d"), scene.ws().join("sub/e/f"));
    move || journal.exists() && !old.exists() && !new.exists()
}

fn read(scene: &Scene, path: impl AsRef<Path>) -> String {
    fs::read_to_string(scene.ws().join(path)).unwrap_or_else(|error| error.to_string())
}

/// Makes a directory immutable until it is dropped.
struct Immutable(PathBuf);

impl Immutable {
    fn new(path: PathBuf) -> Self {
        assert!(Command::new("chattr").arg("+i").arg(&path).status().unwrap().success());
        Self(path)
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        Command::new("chattr").arg("-i").arg(&self.0).status().unwrap();
    }
}

/// The rename and the files of the run wait, and both arrive.
fn accepts(scene: &Scene) -> Committed {
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let result = layer.commit(&leased(scene), &Rules::default()).unwrap();
    assert_eq!(result.conflicts, [], "{result:?}");
    assert_eq!(scene.found(), scene.wanted());
    assert_eq!(read(scene, "sub/e/f"), "precious");
    result
}

/// An act of another process, and its undoing.
type Hindrance = (fn(&Path), fn(&Path));

const HINDRANCES: [Hindrance; 3] = [
    (|ws| fs::create_dir(ws.join("sub/e")).unwrap(), |ws| fs::remove_dir(ws.join("sub/e")).unwrap()),
    (|ws| fs::write(ws.join("sub/e"), "").unwrap(), |ws| fs::remove_file(ws.join("sub/e")).unwrap()),
    (
        |ws| fs::rename(ws.join("sub"), ws.join("away")).unwrap(),
        |ws| fs::rename(ws.join("away"), ws.join("sub")).unwrap(),
    ),
];

#[test]
fn a_rename_that_is_kept_back_arrives_once_its_place_is_free() {
    for (hinder, relent) in HINDRANCES {
        for flags in [true, false] {
            let (scene, mut layer) = renamed();
            let ws = scene.ws();
            let mut faults = once(on_its_way(&scene), move || hinder(&ws));
            if !flags {
                faults = faults.without_rename_flags();
            }
            layer.set_faults(faults);
            let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
            assert_eq!(result.conflicts.len(), 1, "{result:?}");
            assert_eq!(read(&scene, "d/f"), "precious", "{result:?}");
            drop(layer);
            relent(&scene.ws());
            if scene.ws().join("sub").metadata().is_ok() && result.conflicts[0].path.as_path() == Path::new("sub/e") {
                accepts(&scene);
            }
        }
    }
}

#[test]
fn a_renamed_directory_comes_home_when_its_new_parent_refuses_it() {
    let (scene, mut layer) = renamed();
    let refusing = Arc::new(Mutex::new(None));
    let (slot, parent) = (refusing.clone(), scene.ws().join("sub"));
    layer.set_faults(once(on_its_way(&scene), move || *slot.lock().unwrap() = Some(Immutable::new(parent))));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert!(refusing.lock().unwrap().take().is_some());
    assert_eq!(result.conflicts[0].path.as_path(), Path::new("sub/e"), "{result:?}");
    assert_eq!(read(&scene, "d/f"), "precious", "{result:?}");
    drop(layer);
    accepts(&scene);
}

#[test]
fn a_recovery_brings_a_renamed_directory_home() {
    for (hinder, relent) in HINDRANCES {
        let (scene, mut layer) = renamed();
        layer.set_faults(once(on_its_way(&scene), || std::panic::panic_any("crash")));
        let workspace = leased(&scene);
        assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
        drop(layer);
        assert!(!scene.ws().join("d").exists());
        hinder(&scene.ws());
        let Recovered::RolledForward(done) = recover(&scene.path("layers"), "run", &workspace).unwrap() else {
            panic!("there was a journal")
        };
        assert_eq!(done.conflicts.len(), 1, "{done:?}");
        assert_eq!(read(&scene, "d/f"), "precious", "{done:?}");
        relent(&scene.ws());
        accepts(&scene);
    }
}

/// A commit is not finished where neither the new nor the old place takes the directory.
#[test]
fn a_renamed_directory_that_no_place_takes_waits_for_a_recovery() {
    let (scene, mut layer) = renamed();
    let refusing = Arc::new(Mutex::new(Vec::new()));
    let (slot, ws) = (refusing.clone(), scene.ws());
    let act = move || slot.lock().unwrap().extend([ws.join("sub"), ws].map(Immutable::new));
    layer.set_faults(once(on_its_way(&scene), act));
    let error = layer.commit(&leased(&scene), &Rules::default()).unwrap_err();
    assert!(matches!(error, CommitError::Interrupted { .. }), "{error:?}");
    drop(layer);
    assert_eq!(refusing.lock().unwrap().drain(..).count(), 2);
    let Recovered::RolledForward(done) = recover(&scene.path("layers"), "run", &leased(&scene)).unwrap() else {
        panic!("there was a journal")
    };
    assert_eq!(done.conflicts, []);
    assert_eq!(scene.found(), scene.wanted());
}

/// With both places taken the directory lies beside the new one. A second pass finds it there and keeps the rename.
#[test]
fn a_crash_after_a_renamed_directory_went_beside_loses_nothing() {
    for crash in [false, true] {
        let (scene, mut layer) = renamed();
        let (ws, there, journal) = (scene.ws(), on_its_way(&scene), scene.path("layers/run/journal"));
        let taken = Mutex::new(false);
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            let mut taken = taken.lock().unwrap();
            if !*taken && there() {
                *taken = true;
                fs::write(ws.join("sub/e"), "came first").unwrap();
                fs::write(ws.join("d"), "came second").unwrap();
            }
            let is_beside = |one: fs::DirEntry| one.file_name().to_string_lossy().contains(".nexus-conflict-");
            if crash && journal.exists() && fs::read_dir(ws.join("sub")).unwrap().flatten().any(is_beside) {
                std::panic::panic_any("crash");
            }
        })));
        let workspace = leased(&scene);
        let done = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default())));
        assert_eq!(done.is_err(), crash);
        drop(layer);
        let (parked, conflicts) = match done {
            Ok(done) => done.map(|done| (done.parked, done.conflicts)).unwrap(),
            Err(_) => match recover(&scene.path("layers"), "run", &workspace).unwrap() {
                Recovered::RolledForward(done) => (done.parked, done.conflicts),
                other => panic!("{other:?}"),
            },
        };
        assert_eq!([read(&scene, "sub/e"), read(&scene, "d")], ["came first", "came second"]);
        let beside = conflicts.iter().find_map(|one| one.beside.as_ref()).unwrap().as_path();
        assert_eq!(read(&scene, beside.join("f")), "precious", "{conflicts:?}");
        let waits: Vec<_> = parked.iter().map(|one| one.path.as_path().to_owned()).collect();
        assert_eq!(waits, ["sub/e", "sub/e/new"].map(PathBuf::from), "{parked:?}");
        let upper = scene.path("layers/run/upper");
        assert_eq!(fs::read_to_string(upper.join("sub/e/new")).unwrap(), "run");
        assert!(fs::symlink_metadata(upper.join("d")).is_ok(), "the mark of the rename stays with it");
        let mut value = [0; 64];
        let length = rustix::fs::lgetxattr(upper.join("sub/e"), "trusted.overlay.redirect", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"/d");
    }
}
