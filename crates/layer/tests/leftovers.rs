//! Entries that cannot be removed after a commit stay, are named, and hold nothing up.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, write};
use nexus_layer::{
    Abandoned, CommitState, Faults, Layer, LayerMode, Leftover, Recovered, Rules, abandon, clear_staging, recover,
};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Makes everything below a directory removable again at the end of a test.
struct Mutable(PathBuf);

impl Drop for Mutable {
    fn drop(&mut self) {
        chattr("-i", &self.0);
    }
}

fn chattr(flag: &str, path: &Path) {
    let done = Command::new("chattr").args(["-R", flag]).arg(path).output().unwrap();
    assert!(done.status.success() || flag == "-i", "{done:?}");
}

/// Makes an entry, or the first one of the staging directory, immutable as soon as the commit is marked done.
fn immutable_at_the_end(scene: &Scene, path: &str) -> Faults {
    let (done, path) = (scene.path("layers/run/journal.done"), Mutex::new(Some(scene.path(path))));
    Faults::default().between(Arc::new(move |_| {
        if done.exists()
            && let Some(path) = path.lock().unwrap().take()
        {
            let in_slots =
                path.ends_with("slots").then(|| fs::read_dir(&path).unwrap().next().unwrap().unwrap().path());
            let path = in_slots.unwrap_or(path);
            assert!(Command::new("chattr").arg("+i").arg(path).status().unwrap().success());
        }
    }))
}

fn base() -> Vec<Op> {
    let dirs = ["d", "d/in", "p"].map(|dir| Op::Mkdir(b(dir)));
    let files = ["f", "gone", "d/in/x", "d/y", "p/q"].map(|file| write(file, &format!("old {file}")));
    [dirs.to_vec(), files.to_vec()].concat()
}

fn run() -> Vec<Op> {
    vec![write("f", "run f"), Op::Remove(b("gone")), Op::RemoveTree(b("d")), write("p/q", "run q")]
}

/// The text of a file that is, or lies below, what was named.
fn text_below(left: &Leftover, below: &str) -> String {
    fs::read_to_string(left.at.as_path().join(below)).unwrap_or_else(|error| panic!("{left:?}: {error}"))
}

fn slot_path(scene: &Scene, slot: usize, below: &str) -> PathBuf {
    let slot = scene.path(&format!("layers/run/slots/{slot}"));
    if below.is_empty() { slot } else { slot.join(below) }
}

/// A later run in the same directory, under the same id.
fn commits_again(scene: &Scene) {
    let layer = scene.layer(&[write("later", "later")]);
    let result = layer.commit(&leased(scene), &Rules::default()).unwrap();
    assert_eq!((result.state, result.left), (CommitState::Committed, vec![]));
    assert_eq!(fs::read_to_string(scene.ws().join("later")).unwrap(), "later");
}

#[test]
fn an_earlier_version_that_cannot_be_removed_stays_named() {
    // The displaced entry, a file below it to know it by, and whether it lies in a slot.
    for (path, below, slot) in [("f", "", false), ("gone", "", true), ("d", "in/x", true), ("p/q", "", false)] {
        for crash in [false, true] {
            let scene = Scene::new(LayerMode::Root, &base());
            let mut layer = scene.layer(&run());
            let _mutable = Mutable(scene.dir.path().to_owned());
            let places = if slot {
                // Every slot, since their numbers are the plan's business: only one of them has the entry.
                (0..16).map(|slot| (slot_path(&scene, slot, ""), slot_path(&scene, slot, below))).collect()
            } else {
                let place = scene.path("layers/run/upper").join(path);
                vec![(place.clone(), place)]
            };
            let wanted = if below.is_empty() { format!("old {path}") } else { format!("old {path}/{below}") };
            let find = Mutex::new(places);
            let done = scene.path("layers/run/journal.done");
            let text = wanted.clone();
            layer.set_faults(Faults::default().between(Arc::new(move |_| {
                if !done.exists() {
                    return;
                }
                for (place, known_by) in std::mem::take(&mut *find.lock().unwrap()) {
                    if fs::read_to_string(&known_by).is_ok_and(|found| found == text) {
                        assert!(Command::new("chattr").arg("+i").arg(place).status().unwrap().success());
                        if crash {
                            std::panic::panic_any("crash");
                        }
                    }
                }
            })));
            let workspace = leased(&scene);
            let done = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default())));
            drop(layer);
            let (left, conflicts) = match done {
                Ok(done) => done.map(|done| (done.left, done.conflicts)).unwrap(),
                Err(_) => match recover(&scene.path("layers"), "run", &workspace).unwrap() {
                    Recovered::RolledForward(done) => (done.left, done.conflicts),
                    other => panic!("{other:?}"),
                },
            };
            assert_eq!(conflicts, [], "{path}");
            assert_eq!(left.len(), 1, "{path}: {left:?}");
            assert_eq!(left[0].path.as_ref().unwrap().as_path(), Path::new(path), "{left:?}");
            assert!(left[0].why.contains("not permitted"), "{left:?}");
            let found = if below.is_empty() {
                fs::read_to_string(left[0].at.as_path()).unwrap()
            } else {
                text_below(&left[0], below)
            };
            assert_eq!(found, wanted);
            assert_eq!(scene.found(), scene.wanted(), "{path}: the commit itself is whole");
            assert!(!scene.path("layers/run").exists(), "{path}");
            assert_eq!(recover(&scene.path("layers"), "run", &workspace).unwrap(), Recovered::Nothing);
            commits_again(&scene);
        }
    }
}

#[test]
fn what_waits_beside_a_leftover_of_the_staging_is_reviewed() {
    let scene = Scene::new(LayerMode::Root, &base());
    let mut layer = scene.layer(&[run(), vec![Op::Mkdir(b(".vscode")), write(".vscode/t", "waits")]].concat());
    let _mutable = Mutable(scene.dir.path().to_owned());
    layer.set_faults(immutable_at_the_end(&scene, "layers/run/slots"));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!((result.left.len(), result.parked.len()), (1, 2), "{result:?}");
    drop(layer);
    let layer = Layer::open(&scene.path("layers"), "run").unwrap();
    let rules = Rules { accept_protected: true, ..Rules::default() };
    let result = layer.commit(&leased(&scene), &rules).unwrap();
    assert_eq!((result.conflicts, result.left), (vec![], vec![]));
    assert_eq!(fs::read_to_string(scene.ws().join(".vscode/t")).unwrap(), "waits");
}

/// An earlier version that stays in the upper directory would look like a change of the run.
#[test]
fn what_waits_beside_a_leftover_of_the_layer_stays_as_files() {
    let scene = Scene::new(LayerMode::Root, &base());
    let mut layer = scene.layer(&[run(), vec![Op::Mkdir(b(".vscode")), write(".vscode/t", "waits")]].concat());
    let _mutable = Mutable(scene.dir.path().to_owned());
    layer.set_faults(immutable_at_the_end(&scene, "layers/run/upper/f"));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!((result.left.len(), result.parked.len()), (1, 0), "{result:?}");
    let upper = result.left[0].at.as_path().parent().unwrap().to_owned();
    assert_eq!(fs::read_to_string(upper.join("f")).unwrap(), "old f");
    assert_eq!(fs::read_to_string(upper.join(".vscode/t")).unwrap(), "waits");
    drop(layer);
    commits_again(&scene);
}

#[test]
fn a_staging_directory_in_the_workspace_that_stays_is_named() {
    let scene = Scene::new(LayerMode::Root, &base());
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut layer = Layer::create(other.path(), "run", &scene.workspace(), LayerMode::Root).unwrap();
    fs::write(layer.upper().join("f"), "run f").unwrap();
    let _mutable = Mutable(scene.dir.path().to_owned());
    let (done, staging) = (other.path().join("run/journal.done"), scene.ws().join(".nexus-tmp-run"));
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if done.exists() && staging.exists() {
            chattr("+i", &staging);
        }
    })));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!(result.left.len(), 1, "{result:?}");
    assert_eq!(fs::read_to_string(scene.ws().join("f")).unwrap(), "run f");
    assert!(!other.path().join("run").exists());
    assert!(result.left[0].at.as_path().starts_with(scene.ws()), "{result:?}");
    assert_eq!(fs::read_to_string(result.left[0].at.as_path()).unwrap(), "old f", "{result:?}");
}

/// Makes one directory immutable, or no longer.
fn fix(flag: &str, path: &Path) {
    assert!(Command::new("chattr").arg(flag).arg(path).status().unwrap().success());
}

/// The paths below a directory of files with this text.
fn with_text(at: &Path, text: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            with_text(&path, text, found);
        } else if fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text)) {
            found.push(path);
        }
    }
}

/// The layer is on another file system, so that the staging directory of the next commit has the same name.
#[test]
fn a_staging_directory_that_stays_is_nobodys_scratch() {
    for (next, crash) in ["reject", "accept", "recover", "accept part"].map(|next| (next, next == "accept part")) {
        let scene = Scene::new(LayerMode::Root, &["f", "2", "3"].map(|name| write(name, "old")));
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let layers = scene.path("layers");
        fs::remove_dir(&layers).unwrap();
        std::os::unix::fs::symlink(other.path(), &layers).unwrap();
        let mut layer = scene.layer(&[Op::Remove(b("f")), write("2", "new 2"), write("3", "new 3")]);
        let _mutable = Mutable(scene.dir.path().to_owned());
        let (done, ws, once) = (layers.join("run/journal.done"), scene.ws(), Mutex::new(Some(())));
        // A program that had the file open saves it, and nothing can be moved in the workspace.
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            let staging = ws.join(".nexus-tmp-run");
            if done.exists() && staging.exists() && once.lock().unwrap().take().is_some() {
                let slots = fs::read_dir(&staging).unwrap().map(|entry| entry.unwrap().path());
                let slot = slots.into_iter().find(|slot| fs::read_to_string(slot).is_ok_and(|text| text == "old"));
                fs::write(slot.unwrap(), "saved later").unwrap();
                fix("+i", &ws);
                if crash {
                    std::panic::panic_any("crash");
                }
            }
        })));
        let only = |path: &str| Rules { only: Some(vec![b(path).into()]), ..Rules::default() };
        let workspace = leased(&scene);
        let first = catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &only("f")).unwrap().left));
        drop(layer);
        let left = first.unwrap_or_else(|_| match recover(&layers, "run", &workspace).unwrap() {
            Recovered::RolledForward(done) => done.left,
            other => panic!("{other:?}"),
        });
        assert_eq!(fs::read_to_string(left[0].at.as_path()).unwrap(), "saved later", "{left:?}");
        fix("-i", &scene.ws());
        let left = match next {
            "reject" => clear_staging(&layers, "run", &workspace).unwrap(),
            "recover" => {
                assert_eq!(recover(&layers, "run", &workspace).unwrap(), Recovered::Parked);
                // A later reject names it.
                clear_staging(&layers, "run", &workspace).unwrap()
            }
            _ => {
                let layer = Layer::open(&layers, "run").unwrap();
                let rules = if next == "accept" { Rules::default() } else { only("2") };
                layer.commit(&workspace, &rules).unwrap().left
            }
        };
        let mut found = Vec::new();
        with_text(&scene.ws(), "saved later", &mut found);
        assert_eq!(found.len(), 1, "{next}: {found:?}");
        assert!(left.iter().any(|one| found[0].starts_with(one.at.as_path())), "{next}: {left:?}");
        abandon(&layers, "run", || Ok(())).unwrap();
        assert!(found[0].exists(), "{next}");
    }
}

#[test]
fn a_rejected_layer_that_cannot_be_removed_blocks_nothing() {
    for by_name in [false, true] {
        let scene = Scene::new(LayerMode::Root, &base());
        let layer = scene.layer(&run());
        let _mutable = Mutable(scene.dir.path().to_owned());
        chattr("+i", &layer.upper().join("f"));
        let left = if by_name {
            drop(layer);
            match abandon(&scene.path("layers"), "run", || Ok(())).unwrap() {
                Abandoned::Removed(left) => left,
                Abandoned::Nothing => panic!("there was a layer"),
            }
        } else {
            layer.discard().unwrap()
        };
        let left = left.unwrap();
        assert!(left.at.as_path().exists() && left.why.contains("not permitted"), "{left:?}");
        assert!(!scene.path("layers/run").exists());
        commits_again(&scene);
    }
}

#[test]
fn a_staging_directory_in_the_workspace_is_ignored_by_git() {
    let scene = Scene::new(LayerMode::Root, &base());
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut layer = Layer::create(other.path(), "run", &scene.workspace(), LayerMode::Root).unwrap();
    fs::write(layer.upper().join("f"), "run f").unwrap();
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(scene.ws()).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    git(&["init", "-q"]);
    let (journal, staging) = (other.path().join("run/journal"), scene.ws().join(".nexus-tmp-run"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (note, ws) = (seen.clone(), scene.ws());
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() && staging.exists() && note.lock().unwrap().is_empty() {
            let status = Command::new("git").arg("-C").arg(&ws).args(["status", "--short", "-uall"]).output().unwrap();
            let status = String::from_utf8(status.stdout).unwrap();
            note.lock().unwrap().push((fs::read_to_string(staging.join(".gitignore")).unwrap(), status));
        }
    })));
    let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
    assert_eq!((result.conflicts, result.left), (vec![], vec![]));
    let (ignored, status) = seen.lock().unwrap().pop().unwrap();
    assert!(ignored.ends_with("\n*\n"), "{ignored}");
    assert!(status.contains("?? f") && !status.contains(".nexus"), "{status}");
    assert!(!scene.ws().join(".nexus-tmp-run").exists());
    assert!(!git(&["status", "--short"]).contains(".nexus"));
}
