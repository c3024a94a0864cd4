//! Attributes that a user or another process sets on a directory during a commit, or before its recovery, stay.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, write};
use nexus_layer::{Committed, Faults, Layer, LayerMode, Outside, Recovered, Rules, recover, roll_back};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

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

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn set_mtime(path: &Path, at: SystemTime) {
    fs::File::open(path).unwrap().set_modified(at).unwrap();
}

fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

fn base() -> Vec<Op> {
    vec![Op::Mkdir(b("d")), write("d/f", "old"), write("d/g", "old")]
}

/// The moment after the step that brought one of the two files.
fn half_way(scene: &Scene) -> impl Fn() -> bool + Send + Sync + use<> {
    let (journal, ws) = (scene.path("layers/run/journal"), scene.ws());
    // The step itself has a call after the one that brings the file.
    let calls = AtomicU64::new(0);
    move || {
        let is_new = |file: &&str| fs::read_to_string(ws.join(file)).is_ok_and(|text| text.starts_with("run"));
        journal.exists()
            && ["d/f", "d/g"].iter().filter(|file| is_new(file)).count() == 1
            && calls.fetch_add(1, Ordering::SeqCst) == 1
    }
}

fn edits() -> Vec<Op> {
    vec![write("d/f", "run f"), write("d/g", "run g")]
}

/// Interrupts a commit half way, or lets another process act there. Returns the conflicts.
fn commit(
    scene: &Scene,
    mut layer: Layer,
    crash: bool,
    act: impl FnOnce(&Path) + Send + 'static,
) -> Vec<(String, Outside)> {
    let workspace = leased(scene);
    let of = |conflicts: &[nexus_layer::Conflict]| {
        conflicts.iter().map(|one| (one.path.as_path().display().to_string(), one.outside)).collect()
    };
    let d = scene.ws().join("d");
    if !crash {
        layer.set_faults(once(half_way(scene), move || act(&d)));
        let result: Committed = layer.commit(&workspace, &Rules::default()).unwrap();
        return of(&result.conflicts);
    }
    layer.set_faults(once(half_way(scene), || std::panic::panic_any("crash")));
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
    drop(layer);
    act(&d);
    match recover(&scene.path("layers"), "run", &workspace).unwrap() {
        Recovered::RolledForward(done) => of(&done.conflicts),
        other => panic!("{other:?}"),
    }
}

fn has_arrived(scene: &Scene) {
    for file in ["f", "g"] {
        assert_eq!(fs::read_to_string(scene.ws().join("d").join(file)).unwrap(), format!("run {file}"));
    }
}

#[test]
fn a_mode_that_a_user_sets_during_a_commit_stays() {
    for crash in [false, true] {
        for mode in [0o700, 0o777, 0o2755] {
            let scene = Scene::new(LayerMode::Root, &base());
            let layer = scene.layer(&edits());
            let conflicts = commit(&scene, layer, crash, move |d| chmod(d, mode));
            assert_eq!(conflicts, [], "the run did not touch the mode");
            assert_eq!(fs::metadata(scene.ws().join("d")).unwrap().mode() & 0o7777, mode, "crash {crash}");
            has_arrived(&scene);
        }
    }
}

#[test]
fn an_owner_that_a_user_sets_during_a_commit_stays() {
    for crash in [false, true] {
        let scene = Scene::new(LayerMode::Root, &base());
        let layer = scene.layer(&edits());
        let conflicts = commit(&scene, layer, crash, |d| std::os::unix::fs::chown(d, Some(7), Some(8)).unwrap());
        assert_eq!(conflicts, []);
        let meta = fs::metadata(scene.ws().join("d")).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (7, 8), "crash {crash}");
        has_arrived(&scene);
    }
}

#[test]
fn the_time_that_a_run_gives_to_a_directory_comes_unless_another_process_changed_it() {
    let made = |scene: &Scene| fs::metadata(scene.ws().join("d")).unwrap().modified().unwrap();
    let edits = || [edits(), vec![Op::Date(b("d"), 1_300_000_000)]].concat();
    for crash in [false, true] {
        let scene = Scene::new(LayerMode::Root, &base());
        let layer = scene.layer(&edits());
        let wanted = fs::metadata(layer.upper().join("d")).unwrap().modified().unwrap();
        commit(&scene, layer, crash, |_| ());
        if !crash {
            assert_eq!(made(&scene), wanted);
        }
        for (act, is_set) in [
            ((|d| set_mtime(d, long_ago())) as fn(&Path), true),
            (|d| fs::write(d.join("mine"), "made by a person").unwrap(), false),
        ] {
            let scene = Scene::new(LayerMode::Root, &base());
            let layer = scene.layer(&edits());
            let wanted = fs::metadata(layer.upper().join("d")).unwrap().modified().unwrap();
            commit(&scene, layer, crash, act);
            // A later step changes the time again, which is newer than any that the commit would set back.
            assert!(made(&scene) > wanted || (is_set && made(&scene) == long_ago()), "crash {crash}");
            has_arrived(&scene);
        }
    }
}

#[test]
fn an_attribute_that_a_user_sets_during_a_commit_is_a_conflict() {
    let value = |path: &Path| {
        let mut value = [0; 64];
        rustix::fs::lgetxattr(path, "user.mine", &mut value[..]).map(|length| value[..length].to_vec())
    };
    let set = |path: &Path, text: &[u8]| {
        rustix::fs::lsetxattr(path, "user.mine", text, rustix::fs::XattrFlags::empty()).unwrap();
    };
    for crash in [false, true] {
        let scene = Scene::new(LayerMode::Root, &base());
        let layer =
            scene.layer(&[edits(), vec![Op::Chmod(b("d"), 0o750), Op::SetXattr(b("d"), "run".into())]].concat());
        let conflicts = commit(&scene, layer, crash, move |d| set(d, b"of a person"));
        assert_eq!(conflicts, [("d".to_owned(), Outside::Changed)], "crash {crash}");
        assert_eq!(value(&scene.ws().join("d")).unwrap(), b"of a person", "crash {crash}");
        has_arrived(&scene);
    }
}

#[test]
fn a_mode_that_a_user_sets_stays_when_a_commit_is_taken_back() {
    for (chmods, mode) in [(false, 0o700), (false, 0o777), (true, 0o711)] {
        let scene = Scene::new(LayerMode::Root, &base());
        let run = if chmods { [edits(), vec![Op::Chmod(b("d"), 0o750)]].concat() } else { edits() };
        let mut layer = scene.layer(&run);
        layer.set_faults(once(half_way(&scene), || std::panic::panic_any("crash")));
        let workspace = leased(&scene);
        assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
        drop(layer);
        chmod(&scene.ws().join("d"), mode);
        let conflicts = roll_back(&scene.path("layers"), "run", &workspace).unwrap();
        assert_eq!(conflicts.len(), usize::from(chmods), "{conflicts:?}");
        assert_eq!(fs::metadata(scene.ws().join("d")).unwrap().mode() & 0o7777, mode);
        assert_eq!(["f", "g"].map(|file| fs::read(scene.ws().join("d").join(file)).unwrap()), [b"old", b"old"]);
    }
}

/// The attributes of a directory that the run renamed and changed are compared with its own.
#[test]
fn a_renamed_directory_with_attributes_arrives() {
    let scene = Scene::new(LayerMode::Root, &[base(), vec![Op::SetXattr(b("d"), "old".into())]].concat());
    let layer = scene.layer(&[Op::Rename(b("d"), b("e")), Op::Chmod(b("e"), 0o700), write("e/f", "run")]);
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!(result.conflicts, []);
    assert_eq!(scene.found(), scene.wanted());
}
