//! A process writes to a file and closes it in the very moment before a commit, a recovery or a taking back asks for a lease on it:
//! the text is never lost.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Scene, has, settled_lease, write};
use nexus_layer::commit::recover::recover_with;
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{Faults, LayerMode, Rules, Workspace, abandon};
use std::cell::Cell;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

thread_local! {
    /// The number of leases from now on before which the other process writes.
    static BEFORE: Cell<u32> = const { Cell::new(0) };
}

/// Text that the other process writes. It is in no other file.
const TEXT: &str = "of another process";

/// Lets the other process write to the file and close it, and takes a lease on it. That process found the file when that
/// still had its name in the workspace; where it is by now makes no difference to a descriptor.
fn lease_after_a_write(file: BorrowedFd<'_>, take: bool) -> std::io::Result<()> {
    if take && BEFORE.get() > 0 {
        BEFORE.set(BEFORE.get() - 1);
        if BEFORE.get() == 0 {
            let found = format!("/proc/self/fd/{}", file.as_raw_fd());
            fs::File::options().append(true).open(found).unwrap().write_all(TEXT.as_bytes()).unwrap();
        }
    }
    settled_lease(file, take)
}

fn watched(scene: &Scene) -> Workspace {
    Workspace::open(&scene.ws()).unwrap().with_leases(lease_after_a_write)
}

/// Calls `act` once, before the first call for which `when` holds.
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

/// Plays `part` with a write before its first lease, before its second, and so on. What is left is rejected in the end: what
/// the layer has goes with that.
fn before_each_lease(name: &str, part: impl Fn(LayerMode, bool) -> Scene) {
    for (mode, flags) in [(LayerMode::Root, true), (LayerMode::Root, false), (LayerMode::User, true)] {
        let mut nth = 1;
        loop {
            BEFORE.set(nth);
            let scene = part(mode, flags);
            if BEFORE.replace(0) > 0 {
                break;
            }
            abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
            let stays = has(&scene.ws(), TEXT) || has(&scene.path("layers"), TEXT);
            assert!(stays, "{name}, {mode:?}, flags: {flags}: what was written before lease {nth} is lost");
            nth += 1;
        }
        assert!(nth > 2, "{name}, {mode:?}, flags: {flags}: there was no lease");
    }
}

fn with(faults: Faults, flags: bool) -> Faults {
    if flags { faults } else { faults.without_rename_flags() }
}

fn scene(mode: LayerMode) -> Scene {
    Scene::new(mode, &[write("a", "old a"), write("b", "old b"), write("c", "old c")])
}

fn operations() -> [common::Op; 4] {
    [write("a", "run a"), common::Op::Remove(common::b("b")), write("c", "run c"), write("new", "run new")]
}

#[test]
fn what_is_written_right_before_a_lease_of_a_commit_stays() {
    before_each_lease("a commit", |mode, flags| {
        let scene = scene(mode);
        let mut layer = scene.layer(&operations());
        layer.set_faults(with(Faults::default(), flags));
        layer.commit(&watched(&scene), &Rules::default()).unwrap();
        scene
    });
}

/// Another process saves a file at each moment of a commit. In that of the exchange the commit takes its own version out again.
#[test]
fn what_is_written_right_before_a_version_is_taken_back_stays() {
    for nth in 1..=CALLS {
        before_each_lease(&format!("a save before call {nth}"), |mode, flags| {
            let scene = scene(mode);
            let mut layer = scene.layer(&operations());
            let (journal, ws, calls) = (scene.path("layers/run/journal"), scene.ws(), AtomicU32::new(0));
            let when = move || journal.exists() && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth;
            let save = move || {
                // What a process itself replaces is not lost.
                if has(&ws, TEXT) {
                    return;
                }
                fs::write(ws.join("saving"), "saved").unwrap();
                fs::rename(ws.join("saving"), ws.join("a")).unwrap();
            };
            layer.set_faults(with(once(when, save), flags));
            layer.commit(&watched(&scene), &Rules::default()).unwrap();
            scene
        });
    }
}

/// The calls after the decision until the first file has arrived, and a few more.
const CALLS: u32 = 12;

/// A commit that died when two of its files had arrived.
fn interrupted(mode: LayerMode, flags: bool) -> Scene {
    let armed = BEFORE.replace(0);
    let scene = scene(mode);
    let mut layer = scene.layer(&operations());
    let (journal, ws) = (scene.path("layers/run/journal"), scene.ws());
    let is_new = move |file: &str| fs::read_to_string(ws.join(file)).is_ok_and(|text| text.starts_with("run"));
    let when = move || journal.exists() && is_new("a") && is_new("new");
    layer.set_faults(with(once(when, || std::panic::panic_any("crash")), flags));
    let workspace = watched(&scene);
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
    BEFORE.set(armed);
    scene
}

#[test]
fn what_is_written_right_before_a_lease_of_a_recovery_stays() {
    before_each_lease("a recovery", |mode, flags| {
        let scene = interrupted(mode, flags);
        recover_with(&scene.path("layers"), "run", &watched(&scene), &with(Faults::default(), flags)).unwrap();
        scene
    });
}

#[test]
fn what_is_written_right_before_a_lease_of_a_taking_back_stays() {
    before_each_lease("a taking back", |mode, flags| {
        let scene = interrupted(mode, flags);
        roll_back_with(&scene.path("layers"), "run", &watched(&scene), &with(Faults::default(), flags)).unwrap();
        scene
    });
}
