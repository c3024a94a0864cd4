//! A disk without room for copies of git objects, which refs that wait need: with the real git and a real overlay on a small disk.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;
#[path = "common/repository.rs"]
mod repository;

use common::{Op, Scene};
use nexus_layer::{Faults, Layer, LayerMode, Rules};
use repository::{accept, commit_by, git, named, parked};
use rustix::mount::{MountFlags, mount};
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn git_op(words: &str) -> Op {
    Op::Git(words.split(' ').map(str::to_owned).collect())
}

/// A text whose object takes some 2 MB.
fn large_text() -> String {
    let mut bytes = vec![0; 2 << 20];
    fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Takes all room of a disk but for so many bytes.
fn fill(at: &Path, but: u64) {
    let disk = rustix::fs::statvfs(at).unwrap();
    let mut file = fs::OpenOptions::new().append(true).create(true).open(at.join("filler")).unwrap();
    let free = (disk.f_bavail * disk.f_frsize).saturating_sub(but);
    let chunk = vec![b'x'; 64 << 10];
    for _ in 0..free.div_ceil(64 << 10) {
        if file.write_all(&chunk).is_err() {
            break;
        }
    }
}

/// A repository on a small disk whose last commit no log leads to, and a run that commits a large file: its refs wait.
fn scene_on(small: &Path) -> (Scene, Layer) {
    let scene = Scene { dir: tempfile::tempdir_in(small).unwrap(), mode: LayerMode::Root };
    for name in ["ws", "layers", "merged", "plain"] {
        fs::create_dir(scene.path(name)).unwrap();
    }
    let ws = scene.ws();
    git(&ws, &["init", "-q", "-b", "main"]);
    for text in ["1", "2", "3"] {
        fs::write(ws.join("f"), text).unwrap();
        git(&ws, &["add", "."]);
        git(&ws, &["commit", "-q", "-m", text]);
    }
    git(&ws, &["reset", "-q", "--hard", "HEAD~1"]);
    fs::write(ws.join("large"), large_text()).unwrap();
    common::wait_for_tick(small);
    let ops = [git_op("reflog expire --expire=now --all"), git_op("add large"), git_op("commit -q -m of-the-run")];
    let layer = scene.layer(&ops);
    (scene, layer)
}

/// Runs in a mount namespace of its own.
#[test]
#[ignore = "the child of the other tests"]
fn child_commits_on_a_full_disk() {
    let small = std::path::PathBuf::from(std::env::var("NEXUS_TEST_ORDER").unwrap());
    let options = c"size=64m";
    mount("none", &small, "tmpfs", MountFlags::empty(), Some(options)).unwrap();
    // There is no room from the beginning, or another process takes it between two copies.
    for is_late in [false, true] {
        let (scene, mut layer) = scene_on(&small);
        let (at, done) = (small.clone(), scene.path("layers/run/journal.done"));
        if is_late {
            let count = AtomicU64::new(0);
            let objects = layer.upper().join(".git/objects");
            layer.set_faults(Faults::default().between(Arc::new(move |_| {
                // A commit leaves the directory of an object whose neighbours the workspace has: a copy is a file in one.
                let mut all = fs::read_dir(&objects).into_iter().flatten().flatten();
                let is_copying = done.exists()
                    && all.any(|one| fs::read_dir(one.path()).is_ok_and(|mut inside| inside.next().is_some()));
                if is_copying && count.fetch_add(1, Ordering::SeqCst) == 0 {
                    fill(&at, 0);
                }
            })));
        } else {
            fill(&small, 1 << 20);
        }
        let result = commit_by(&scene, &layer, &Rules::default());
        drop(layer);
        let refs = parked(&result);
        assert!(refs.iter().any(|path| path.starts_with(".git/refs/")), "{is_late}: {result:?}");
        let [needed] = &result.left[..] else { panic!("{is_late}: {result:?}") };
        assert!(needed.is_needed && needed.to_string().contains("git gc"), "{needed}");
        let words = || Layer::open(&scene.path("layers"), "run").unwrap().missing_copies();
        assert!(words().is_some_and(|words| words.contains("no room for copies")), "{is_late}");
        // Still no room at the next accept.
        if !is_late {
            accept(&scene, &named(&["nothing"]));
            assert!(words().is_some(), "{is_late}");
        }
        fs::remove_file(small.join("filler")).unwrap();
        let ws = scene.ws();
        let result = accept(&scene, &named(&[".git"]));
        assert_eq!((parked(&result), result.conflicts.len()), (vec![], 0), "{is_late}: {result:?}");
        assert_eq!(git(&ws, &["log", "-1", "--format=%s"]), "of-the-run\n", "{is_late}");
        let output = git(&ws, &["fsck", "--full"]);
        assert!(!output.contains("missing") && !output.contains("error"), "{is_late}: {output}");
    }
}

#[test]
fn a_commit_ends_on_a_disk_without_room_for_copies() {
    let scene = Scene::new(LayerMode::Root, &[]);
    let small = scene.path("small");
    fs::create_dir(&small).unwrap();
    scene.child("child_commits_on_a_full_disk", small.to_str().unwrap(), &[], true).unwrap();
}
