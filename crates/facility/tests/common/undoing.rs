//! Scenes of undos: a workspace beside its states, and runs that change it.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use super::{Listing, edit, listing};
use nexus_facility::checkpoints::{CheckpointError, Checkpoints, Subject, UndoRequest, Undone, clock};
use nexus_model::RunId;
use nexus_snapshot::SnapshotError;
use proptest::prelude::*;
use std::fs::{self, File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub struct Scene {
    pub base: tempfile::TempDir,
    pub root: File,
    pub checkpoints: Checkpoints,
}

impl Scene {
    pub fn new() -> Self {
        let base = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(base.path().join("state")).unwrap();
        fs::create_dir(base.path().join("w")).unwrap();
        let root = File::open(base.path().join("w")).unwrap();
        let checkpoints = Checkpoints::make(&base.path().join("state")).unwrap();
        Self { base, root, checkpoints }
    }

    pub fn tree(&self) -> PathBuf {
        self.base.path().join("w")
    }

    pub fn put(&self, name: &str, content: &str) {
        let path = self.tree().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.tree().join(name)).unwrap_or_default()
    }

    pub fn take(&self) -> RunId {
        let run = RunId::new();
        let workspace = self.tree().as_path().into();
        let subject = Subject { run, workspace, directory: "d".to_owned(), command: vec!["x".into()] };
        self.checkpoints.take(subject, self.root.as_fd(), None, &mut |_, _| Ok(())).unwrap();
        run
    }

    pub fn end(&self, run: RunId) {
        self.checkpoints.end(run, self.root.as_fd(), clock(), None, &mut |_, _| Ok(())).unwrap();
    }

    /// A request for everything, also of a run whose end is not known.
    pub fn whole(&self, run: RunId) -> UndoRequest {
        let overwrites = self.checkpoints.run(run).unwrap().ended.is_none();
        UndoRequest { overwrites, ..UndoRequest::default() }
    }

    pub fn undo(&self, run: RunId, ask: &UndoRequest) -> Result<Undone, CheckpointError> {
        self.checkpoints.undo(run, self.root.as_fd(), ask, &mut || Ok(()))
    }

    /// Undoes up to the given number of pauses, and stops there as a kill would.
    pub fn cut_off(&self, run: RunId, after: usize) -> Result<Undone, CheckpointError> {
        let mut left = after;
        self.checkpoints.undo(run, self.root.as_fd(), &self.whole(run), &mut || {
            left = left.checked_sub(1).ok_or_else(|| SnapshotError::Store(std::io::Error::other("cut off")))?;
            Ok(())
        })
    }
}

/// The tree with its root, and no directory of an undo in it.
pub fn whole(tree: &Path) -> (Listing, u32, i64, i64) {
    let meta = fs::metadata(tree).unwrap();
    (listing(tree), meta.mode(), meta.mtime(), meta.mtime_nsec())
}

/// One change by a run: those of other tests, and directories that move, special files, and links across directories.
pub fn hostile(tree: &Path, what: u8, place: u8, value: u16) {
    let names = ["", "a", "a/b", "c", "x", "a/x"];
    let (from, to) = (names[usize::from(place) % 6], names[usize::from(value) % 6]);
    match what % 14 {
        0..9 => edit(tree, what % 14, place, value),
        9 | 10 => {
            fs::rename(tree.join(from), tree.join(to).join("moved")).ok();
        }
        11 => {
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mkfifoat(rustix::fs::CWD, tree.join(from).join("fifo"), mode).ok();
        }
        12 => {
            fs::hard_link(tree.join(from).join("y"), tree.join(to).join("z")).ok();
        }
        _ => {
            let path = tree.join(from);
            if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
                fs::set_permissions(path, Permissions::from_mode(0o500 | u32::from(value % 0o200))).unwrap();
            }
        }
    }
}

pub type Edits = Vec<(u8, u8, u16)>;

pub fn edits(most: usize) -> impl Strategy<Value = Edits> {
    prop::collection::vec((any::<u8>(), any::<u8>(), any::<u16>()), 0..most)
}

pub fn played(before: &Edits, during: &Edits) -> (Scene, RunId, (Listing, u32, i64, i64)) {
    let scene = Scene::new();
    for (what, place, value) in before {
        edit(&scene.tree(), *what, *place, *value);
    }
    let wanted = whole(&scene.tree());
    let run = scene.take();
    for (what, place, value) in during {
        hostile(&scene.tree(), *what, *place, *value);
    }
    (scene, run, wanted)
}
