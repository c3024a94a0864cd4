//! A process with a deleted directory open still saves files in it while the commit removes it: what it wrote stays.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, dying_at, wait_for_tick, write};
use nexus_layer::{Committed, Faults, Layer, LayerMode, Outside, Recovered, Rules, Workspace, recover};
use rustix::fs::{Mode, OFlags, openat, renameat};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use std::fs;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Text that the process writes and looks for afterwards.
const TEXT: &str = "typed by a person";

/// A way to save a file. Returns whether it was saved: a leased file takes no writer.
type Save = fn(&OwnedFd) -> bool;

fn save_by_rename(dir: &OwnedFd) -> bool {
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::TRUNC;
    // Once the directory is removed there is nowhere to save to.
    let Ok(file) = openat(dir, ".x.swp", flags, Mode::from_raw_mode(0o600)) else { return false };
    fs::File::from(file).write_all(TEXT.as_bytes()).unwrap();
    renameat(dir, ".x.swp", dir, "x").unwrap();
    true
}

fn save_in_place(dir: &OwnedFd) -> bool {
    let Ok(file) = openat(dir, "x", OFlags::WRONLY | OFlags::TRUNC | OFlags::NONBLOCK, Mode::empty()) else {
        return false;
    };
    fs::File::from(file).write_all(TEXT.as_bytes()).unwrap();
    true
}

fn is_saved(at: &Path) -> bool {
    fs::read_dir(at).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() { is_saved(&path) } else { fs::read_to_string(path).is_ok_and(|text| text == TEXT) }
    })
}

/// Commits the deletion of a directory, in which another process saves a file before the `nth` call after the commit was
/// marked done. Returns the result, whether the file was saved, and whether there was such a call.
fn commit(scene: &Scene, leased: bool, nth: u64, save: Save) -> (Committed, bool, bool) {
    let mut layer = scene.layer(&[Op::RemoveTree(b("d"))]);
    let (dir, done) = (fs::File::open(scene.ws().join("d/in")).unwrap(), scene.path("layers/run/journal.done"));
    let (calls, saved) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, written) = (calls.clone(), saved.clone());
    let dir = OwnedFd::from(dir);
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if done.exists() && counted.fetch_add(1, Ordering::SeqCst) + 1 == nth {
            written.store(save(&dir), Ordering::SeqCst);
        }
    })));
    let mut workspace = scene.workspace();
    if leased {
        workspace = workspace.with_leases(nexus_jail::lease::read_lease);
    }
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    (result, saved.load(Ordering::SeqCst), calls.load(Ordering::SeqCst) >= nth)
}

#[test]
fn what_is_saved_in_a_directory_while_it_is_removed_stays() {
    for (leased, save) in
        [(true, save_by_rename as Save), (false, save_by_rename), (true, save_in_place), (false, save_in_place)]
    {
        for nth in 1.. {
            let base = [Op::Mkdir(b("d")), Op::Mkdir(b("d/in")), write("d/in/x", "old"), write("d/in/y", "old")];
            let scene = Scene::new(LayerMode::Root, &base);
            let (result, saved, called) = commit(&scene, leased, nth, save);
            if !called {
                assert!(nth > 6, "only {nth} calls");
                break;
            }
            if saved {
                assert!(is_saved(scene.dir.path()), "leased {leased}, before call {nth}: {result:?}");
            }
        }
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    scene: PathBuf,
    late: bool,
}

/// Runs in a mount namespace of its own.
#[test]
#[ignore = "the child of the other tests"]
fn child_commits_beside_a_mounted_file() {
    let order: Order = serde_json::from_str(&std::env::var("NEXUS_TEST_ORDER").unwrap()).unwrap();
    let (layers, ws) = (order.scene.join("layers"), order.scene.join("ws"));
    let (from, at) = (order.scene.join("mounted"), ws.join("d/in/x"));
    let workspace = Workspace::open(&ws).unwrap();
    let mut layer = Layer::open(&layers, "run").unwrap();
    let put = move |at: &Path| mount_bind(&from, at).unwrap();
    if order.late {
        let (journal, at) = (layers.join("run/journal"), Mutex::new(Some(at.clone())));
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            if journal.exists()
                && let Some(at) = at.lock().unwrap().take()
            {
                put(&at);
            }
        })));
    } else {
        put(&at);
    }
    let result = layer.commit(&workspace, &Rules::default()).unwrap();
    let [conflict] = &result.conflicts[..] else { panic!("{result:?}") };
    assert!(Path::new("d/in/x").starts_with(conflict.path.as_path()), "{result:?}");
    assert!(matches!(conflict.outside, Outside::Changed | Outside::Blocked), "{result:?}");
    assert_eq!(result.left, []);
    assert_eq!(fs::read_to_string(&at).unwrap(), "mounted");
    unmount(&at, UnmountFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(&at).unwrap(), "old", "{result:?}");
    assert_eq!(fs::read_to_string(ws.join("d/in/y")).unwrap(), "old", "nothing was removed before: {result:?}");
    assert_eq!(fs::read_to_string(ws.join("d/z")).unwrap(), "old", "{result:?}");
}

#[test]
fn a_file_mounted_inside_a_deleted_directory_is_a_conflict() {
    for late in [false, true] {
        let base = [Op::Mkdir(b("d")), Op::Mkdir(b("d/in"))];
        let files = ["d/in/x", "d/in/y", "d/z"].map(|file| write(file, "old"));
        let scene = Scene::new(LayerMode::Root, &[base.to_vec(), files.to_vec()].concat());
        // Older than the run, so that no time stamp tells.
        fs::write(scene.path("mounted"), "mounted").unwrap();
        wait_for_tick(scene.dir.path());
        let layer = scene.layer(&[Op::RemoveTree(b("d"))]);
        layer.park(&scene.workspace(), &Rules::default()).unwrap();
        drop(layer);
        let order = Order { scene: scene.dir.path().to_owned(), late };
        let order = serde_json::to_string(&order).unwrap();
        if let Err(output) = scene.child("child_commits_beside_a_mounted_file", &order, &[], true) {
            panic!("late {late}: {output}");
        }
    }
}

/// A deleted directory with files of several names, one of them also elsewhere.
fn with_hard_links(mode: LayerMode) -> Scene {
    let dirs = [Op::Mkdir(b("d")), Op::Mkdir(b("d/in")), Op::Mkdir(b("d/empty"))];
    let files = ["d/1", "d/in/x", "d/in/y", "outside"].map(|file| write(file, "old"));
    let links =
        [("d/1", "d/2"), ("d/1", "d/in/3"), ("outside", "d/o"), ("outside", "d/p")].map(|(a, z)| Op::Link(b(a), b(z)));
    Scene::new(mode, &[&dirs[..], &files[..], &links[..]].concat())
}

#[test]
fn a_deleted_directory_with_hard_links_goes_in_full() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for leased in [true, false] {
            let scene = with_hard_links(mode);
            let layer = scene.layer(&[Op::RemoveTree(b("d"))]);
            let mut workspace = scene.workspace();
            if leased {
                workspace = workspace.with_leases(nexus_jail::lease::read_lease);
            }
            let result = layer.commit(&workspace, &Rules::default()).unwrap();
            assert_eq!((result.conflicts.len(), result.left.len()), (0, 0), "{mode:?} {leased}: {result:?}");
            assert_eq!(scene.found(), scene.wanted());
        }
    }
}

/// rustc does so with what it compiled before: a new directory gets further names of old files, and an older directory goes.
#[test]
fn a_hard_link_to_a_file_in_a_deleted_directory_is_no_conflict() {
    for mode in [LayerMode::Root, LayerMode::User] {
        for goes_too in [false, true] {
            let dirs = ["old", "last"].map(|dir| Op::Mkdir(b(dir)));
            let base = [&dirs[..], &[write("old/a", "same"), Op::Link(b("old/a"), b("last/a"))]].concat();
            let scene = Scene::new(mode, &base);
            let mut steps = vec![Op::Mkdir(b("new")), Op::Link(b("last/a"), b("new/a")), Op::RemoveTree(b("old"))];
            steps.extend(goes_too.then(|| Op::RemoveTree(b("last"))));
            let result = scene.layer(&steps).commit(&scene.workspace(), &Rules::default()).unwrap();
            assert_eq!((result.conflicts.len(), result.left.len()), (0, 0), "{mode:?} {goes_too}: {result:?}");
            assert_eq!(scene.found(), scene.wanted(), "{mode:?} {goes_too}");
        }
    }
}

#[test]
fn a_kill_while_a_directory_is_removed_is_no_conflict() {
    for nth in 1.. {
        let scene = with_hard_links(LayerMode::Root);
        let mut layer = scene.layer(&[Op::RemoveTree(b("d"))]);
        layer.set_faults(dying_at(scene.path("layers/run/journal.done"), nth));
        let workspace = scene.workspace().with_leases(nexus_jail::lease::read_lease);
        let commit = AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()).unwrap());
        if catch_unwind(commit).is_ok() {
            assert!(nth > 10, "only {nth} calls");
            break;
        }
        drop(layer);
        match recover(&scene.path("layers"), "run", &workspace).unwrap() {
            Recovered::RolledForward(done) => {
                assert_eq!((done.conflicts.len(), done.left.len()), (0, 0), "{nth}: {done:?}");
            }
            other => assert!(matches!(other, Recovered::Nothing | Recovered::Discarded(None)), "{nth}: {other:?}"),
        }
        assert_eq!(scene.found(), scene.wanted(), "{nth}");
    }
}

/// A program moves an old file of its own over one that is just leaving, and nexus is killed before it looks again.
#[test]
fn an_old_file_moved_over_a_leaving_one_stays_after_a_kill() {
    let mut stayed = 0;
    for (moved, killed) in (1..40).flat_map(|moved| (1..3).map(move |later| (moved, moved + later))) {
        let base = [Op::Mkdir(b("d")), write("d/x", "old"), write("mine", TEXT), Op::Touch(b("mine"))];
        let scene = Scene::new(LayerMode::Root, &base);
        let mut layer = scene.layer(&[Op::RemoveTree(b("d"))]);
        let (dir, done) = (fs::File::open(scene.ws().join("d")).unwrap(), scene.path("layers/run/journal.done"));
        let (ws, calls) = (fs::File::open(scene.ws()).unwrap(), AtomicU64::new(0));
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            let call = if done.exists() { calls.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
            if call == moved {
                renameat(&ws, "mine", &dir, "x").ok();
            }
            if call == killed {
                std::panic::panic_any("crash");
            }
        })));
        let workspace = scene.workspace().with_leases(nexus_jail::lease::read_lease);
        let commit = AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()).unwrap());
        let crashed = catch_unwind(commit).is_err();
        drop(layer);
        if crashed {
            recover(&scene.path("layers"), "run", &workspace).unwrap();
            stayed += 1;
        }
        let is_there = is_saved(&scene.ws()) || is_saved(&scene.path("layers"));
        assert!(is_there, "moved before call {moved}, killed before call {killed}");
    }
    assert!(stayed > 5, "{stayed}");
}
