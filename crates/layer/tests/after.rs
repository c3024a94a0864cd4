//! The files of a workspace as a run left them, before its changes are decided: those that a commit would make.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, rename};
use nexus_layer::meta::EntryType;
use nexus_layer::review::after_run::{FilesAfter, files_of};
use nexus_layer::{LayerMode, Rules, Workspace};
use std::collections::BTreeMap;
use std::io::Read;

fn file(path: &str, text: &str) -> Op {
    Op::Write(b(path), text.into())
}

/// Content by path; a link is its target.
fn contents(after: &FilesAfter<'_>) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let read = |one| match after.open(one) {
        Ok(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            bytes
        }
        Err(_) => after.target(one).unwrap(),
    };
    after.files.iter().map(|one| (one.path.clone(), read(one))).collect()
}

#[test]
fn files_after_a_run_are_those_that_a_commit_would_make() {
    let base = [
        Op::Mkdir(b("a")),
        Op::Mkdir(b("a/sub")),
        file("a/one", "1"),
        file("a/sub/two", "2"),
        file("a/sub/gone", "x"),
        Op::Mkdir(b("kept")),
        file("kept/same", "same"),
        file("kept/changed", "before"),
        file("hidden", "x"),
        Op::Mkdir(b("replaced")),
        file("replaced/inner", "x"),
        Op::Symlink(b("kept/same"), b("link")),
    ];
    let ops = [
        rename("a", "b"),
        Op::Remove(b("b/sub/gone")),
        file("b/sub/new", "new"),
        file("kept/changed", "after"),
        Op::Remove(b("hidden")),
        rename("replaced", "moved"),
        Op::Mkdir(b("replaced")),
        file("replaced/other", "other"),
        Op::Symlink(b("/etc/passwd"), b("out")),
    ];
    // An ordinary user's overlay renames no directory of the workspace.
    let of_user =
        ops.iter().filter(|op| !matches!(op, Op::Rename(..))).filter(|op| !touches(op, "b/")).cloned().collect();
    for (mode, ops) in [(LayerMode::Root, ops.to_vec()), (LayerMode::User, of_user)] {
        let scene = Scene::new(mode, &base);
        let layer = scene.layer(&ops);
        let workspace = scene.workspace();
        let after = layer.files_after(&workspace, &Rules::default(), &|_| true).unwrap();
        assert!(!after.incomplete);
        // A plain directory after the same operations says what is right.
        let plain = Workspace::open(&scene.path("plain")).unwrap();
        let wanted = contents(&files_of(&plain, &|_| true).unwrap());
        assert_eq!(contents(&after), wanted, "{mode:?}");
        assert!(wanted.len() > 7, "{wanted:?}");
        let some = layer.files_after(&workspace, &Rules::default(), &|path| path.starts_with(b"kept/")).unwrap();
        assert_eq!(some.files.len(), 2);
        // Before the commit the workspace itself is as it was.
        let before = files_of(&workspace, &|path| path.starts_with(b"kept/")).unwrap();
        assert_eq!(
            (&contents(&before)[&b("kept/changed")][..], &contents(&some)[&b("kept/changed")][..]),
            (&b"before"[..], &b"after"[..])
        );
    }
}

/// Tells whether an operation is on something below a directory.
fn touches(op: &Op, directory: &str) -> bool {
    matches!(op, Op::Remove(path) | Op::Write(path, _) if path.starts_with(directory.as_bytes()))
}

#[test]
fn what_takes_the_place_of_a_file_is_not_opened() {
    let scene = Scene::new(LayerMode::Root, &[file("file", "text")]);
    let workspace = Workspace::open(&scene.ws()).unwrap();
    let after = files_of(&workspace, &|_| true).unwrap();
    assert_eq!((after.files.len(), after.files[0].kind), (1, EntryType::File));
    std::fs::remove_file(scene.ws().join("file")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", scene.ws().join("file")).unwrap();
    assert!(after.open(&after.files[0]).is_err(), "a link");
    std::fs::remove_file(scene.ws().join("file")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, scene.ws().join("file"), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    assert!(after.open(&after.files[0]).is_err(), "a pipe holds nothing up");
}
