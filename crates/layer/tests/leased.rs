//! A process has a lease for writing on a file, with changes that it writes when another process opens the file; or nothing can be
//! known about the writers of a file, since this process or the machine is short of something.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, settled_lease, write};
use nexus_jail::lease::write_lease;
use nexus_layer::{Committed, Faults, LayerMode, Outside, Rules, Workspace};
use rustix::io::Errno;
use std::cell::Cell;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

const MODES: [LayerMode; 2] = [LayerMode::Root, LayerMode::User];

/// The process that holds a lease for writing, as a file server does for a client that has unwritten changes.
struct Holder(fs::File);

impl Holder {
    fn of(path: &Path) -> Self {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        write_lease(file.as_fd(), true).unwrap();
        Self(file)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        write_lease(self.0.as_fd(), false).unwrap();
    }
}

/// The workspace, and the runs that replace, delete or take away `dir/f`.
fn scenes() -> impl Iterator<Item = (Scene, Vec<Op>)> {
    let base = [Op::Mkdir(b("dir")), write("dir/f", "old")];
    let runs = [vec![write("dir/f", "run")], vec![Op::Remove(b("dir/f"))], vec![Op::RemoveTree(b("dir"))]];
    MODES.into_iter().flat_map(move |mode| {
        let base = base.clone();
        runs.clone().into_iter().map(move |run| (Scene::new(mode, &base), run))
    })
}

fn is_open(done: &Committed) -> bool {
    !done.conflicts.is_empty() && done.conflicts.iter().all(|one| one.outside == Outside::Open)
}

#[test]
fn a_file_on_which_a_process_has_a_write_lease_stays() {
    for (scene, run) in scenes() {
        let layer = scene.layer(&run);
        let holder = Holder::of(&scene.ws().join("dir/f"));
        let done = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        assert!(is_open(&done), "{run:?} {:?}: {done:?}", scene.mode);
        drop(holder);
        assert_eq!(fs::read(scene.ws().join("dir/f")).unwrap(), b"old", "{run:?} {:?}", scene.mode);
    }
}

/// The lease comes after the decision.
#[test]
fn a_write_lease_that_comes_late_keeps_the_file() {
    for (scene, run) in scenes() {
        let mut layer = scene.layer(&run);
        let (journal, path) = (scene.path("layers/run/journal"), scene.ws().join("dir/f"));
        let holder = Arc::new(Mutex::new(None));
        let held = Arc::clone(&holder);
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            if journal.exists() {
                held.lock().unwrap().get_or_insert_with(|| Holder::of(&path));
            }
        })));
        let done = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        assert!(is_open(&done), "{run:?} {:?}: {done:?}", scene.mode);
        // Every other open waits until the lease ends.
        drop(holder.lock().unwrap().take());
        assert!(common::has(&scene.ws(), "old"), "{run:?} {:?}: {done:?}", scene.mode);
    }
}

/// The harmless twin: a file that no process writes to.
#[test]
fn a_file_without_a_lease_is_replaced() {
    for (scene, run) in scenes() {
        let layer = scene.layer(&run);
        drop(Holder::of(&scene.ws().join("dir/f")));
        let done = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        assert!(done.conflicts.is_empty() && done.parked.is_empty(), "{run:?} {:?}: {done:?}", scene.mode);
    }
}

thread_local! {
    /// The error of the next requests for a lease.
    static ERROR: Cell<i32> = const { Cell::new(0) };
}

fn failing_lease(file: BorrowedFd<'_>, take: bool) -> io::Result<()> {
    if take { Err(io::Error::from_raw_os_error(ERROR.get())) } else { settled_lease(file, take) }
}

#[test]
fn a_want_of_descriptors_or_memory_does_not_pass_for_a_quiet_file() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::INTR, Errno::NOLCK] {
        let scene = Scene::new(LayerMode::Root, &[write("f", "old")]);
        let layer = scene.layer(&[write("f", "run")]);
        ERROR.set(errno.raw_os_error());
        let workspace = Workspace::open(&scene.ws()).unwrap().with_leases(failing_lease);
        layer.commit(&workspace, &Rules::default()).unwrap_err();
        assert_eq!(fs::read(scene.ws().join("f")).unwrap(), b"old", "{errno:?}");
        let done = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        assert!(done.conflicts.is_empty(), "{errno:?}: {done:?}");
        assert_eq!(fs::read(scene.ws().join("f")).unwrap(), b"run", "{errno:?}");
    }
    // The twin: a file system that has no leases.
    for errno in [Errno::INVAL, Errno::ACCESS] {
        let scene = Scene::new(LayerMode::Root, &[write("f", "old")]);
        let layer = scene.layer(&[write("f", "run")]);
        ERROR.set(errno.raw_os_error());
        let workspace = Workspace::open(&scene.ws()).unwrap().with_leases(failing_lease);
        let done = layer.commit(&workspace, &Rules::default()).unwrap();
        assert!(done.conflicts.is_empty() && done.unwatched > 0, "{errno:?}: {done:?}");
    }
}
