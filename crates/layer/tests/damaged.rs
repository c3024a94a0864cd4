//! Files of a layer that are damaged, cut off, of another version or replaced by something else: each reader ends with a
//! named error or a whole answer, no version of a file is lost, and nothing outside of the layer is touched.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, snapshot, write};
use nexus_layer::journal::file::{FoundJournal, Journal, Outcome};
use nexus_layer::review::diff::DiffOptions;
use nexus_layer::{
    CommitError, Faults, FsTime, Layer, LayerMode, LayerOrigin, RecoverError, Rules, Workspace, abandon, recover,
    roll_back, stage,
};
use rustix::fs::{CWD, Mode};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A layer that replaces, deletes, renames and adds, beside a file that it leaves alone.
fn scene() -> (Scene, Layer) {
    let mut base = vec![Op::Mkdir(b("d")), Op::Mkdir(b("gone")), write("precious", "precious")];
    base.extend(["a", "b", "d/c", "gone/f"].map(|path| write(path, &format!("old {path}"))));
    let scene = Scene::new(LayerMode::Root, &base);
    let layer = scene.layer(&[
        write("a", "run a"),
        Op::Rename(b("d"), b("e")),
        write("e/c", "run d/c"),
        Op::RemoveTree(b("gone")),
        write("new", "run new"),
        Op::Mkdir(b(".vscode")),
        write(".vscode/tasks.json", "run tasks"),
    ]);
    (scene, layer)
}

/// Damaged forms of a file: cut off, turned bits, another version, something that is not a file of ours.
fn damaged(text: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = Vec::new();
    let stride = |count: usize| 1 + text.len() / count;
    for at in (0..text.len()).step_by(stride(20)) {
        all.push((format!("cut at {at}"), text[..at].to_vec()));
    }
    for (at, mask) in (0..text.len()).step_by(stride(200)).zip([0x01, 0x02, 0x10, 0x80].into_iter().cycle()) {
        let mut bytes = text.to_vec();
        bytes[at] ^= mask;
        all.push((format!("byte {at} turned by {mask}"), bytes));
    }
    let text = String::from_utf8(text.to_vec()).unwrap();
    for (from, to) in [
        ("\"version\":2", "\"version\":0"),
        ("\"version\":2", "\"version\":3"),
        ("\"version\":2", "\"version\":4294967295"),
        ("\"version\":2", "\"version\":-1"),
        ("\"a\"", "\"../outside\""),
        ("\"a\"", "\"/etc/passwd\""),
        ("\"a\"", "\"\""),
        ("\"a\"", "\".\""),
        ("\"a\"", "\"precious\""),
        ("\"e/c\"", "\"e/../../outside\""),
    ] {
        if text.contains(from) {
            all.push((format!("{from} is {to}"), text.replace(from, to).into_bytes()));
        }
    }
    for other in ["", "\n", "null", "{}", "[]", "0", "\"\"", "{\"version\":2}", "{\"version\":99}\n{}"] {
        all.push((format!("{other:?}"), b(other)));
    }
    all.push(("twice".into(), text.repeat(2).into_bytes()));
    all.push(("deep".into(), vec![b'['; 1 << 20]));
    all.push(("NULs".into(), vec![0; 1 << 16]));
    all
}

/// Things that are not regular files.
const THINGS: [&str; 5] = ["directory", "fifo", "link", "dangling", "sparse"];

fn put(scene: &Scene, path: &Path, thing: &str) {
    fs::remove_file(path).ok();
    match thing {
        "directory" => fs::create_dir(path).unwrap(),
        "fifo" => rustix::fs::mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap(),
        "link" => std::os::unix::fs::symlink(scene.ws().join("precious"), path).unwrap(),
        "dangling" => std::os::unix::fs::symlink(scene.path("outside"), path).unwrap(),
        _ => fs::File::create(path).unwrap().set_len(1 << 42).unwrap(),
    }
}

fn take_away(path: &Path) {
    fs::remove_file(path).or_else(|_| fs::remove_dir_all(path)).ok();
}

/// Every file's content below a directory.
fn contents(top: &Path) -> Vec<Vec<u8>> {
    snapshot(top, false).into_values().filter(|entry| entry.0 == 'f').map(|entry| entry.2).collect()
}

/// Whatever was done: what the run left alone is as it was, and each other file has a version in the workspace, or has
/// been deleted by the run.
fn nothing_is_lost(scene: &Scene, what: &str) {
    nothing_else_is_touched(scene, what);
    let workspace = contents(&scene.ws());
    let mut everywhere = workspace.clone();
    for place in ["upper", "slots"].map(|name| scene.path("layers/run").join(name)) {
        if place.is_dir() {
            everywhere.extend(contents_of_layer(&place));
        }
    }
    for path in ["a", "d/c"] {
        let has = |all: &[Vec<u8>], by: &str| all.contains(&b(&format!("{by} {path}")));
        assert!(has(&workspace, "run") || has(&everywhere, "old"), "{what}: both versions of {path} are gone");
        assert!(has(&everywhere, "run"), "{what}: the run's version of {path} is gone");
    }
}

fn nothing_else_is_touched(scene: &Scene, what: &str) {
    assert_eq!(fs::read(scene.ws().join("precious")).unwrap(), b"precious", "{what}");
    assert_eq!(fs::read(scene.ws().join("b")).unwrap(), b"old b", "{what}");
    assert!(!scene.path("outside").exists(), "{what}: something was made outside");
}

/// As [`contents`], of a tree with overlay's marks.
fn contents_of_layer(top: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(top).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(contents_of_layer(&entry.path()));
        } else if entry.file_type().unwrap().is_file() {
            found.push(fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[test]
fn a_damaged_parked_layer_is_named_and_stays() {
    let (scene, layer) = scene();
    layer.park(&scene.workspace(), &Rules::default()).unwrap();
    drop(layer);
    let file = scene.path("layers/run/parked.json");
    let text = fs::read(&file).unwrap();
    let before = (snapshot(&scene.ws(), true), contents_of_layer(&scene.path("layers/run/upper")));
    let mut refused = 0;
    let mut look = |what: &str| {
        stage(&scene.path("layers"), "run").unwrap();
        match Layer::open(&scene.path("layers"), "run") {
            // A file that says something else than was written is classified by what the layer really holds.
            Ok(layer) => {
                layer.changes(&scene.workspace(), &Rules::default()).ok();
                layer.diff(&scene.workspace(), &Rules::default(), &DiffOptions::default()).ok();
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("run"), "{what}: {error}");
            }
        }
        let now = (snapshot(&scene.ws(), true), contents_of_layer(&scene.path("layers/run/upper")));
        assert_eq!(now, before, "{what}");
    };
    for (what, bytes) in damaged(&text) {
        fs::write(&file, bytes).unwrap();
        look(&what);
    }
    for thing in THINGS {
        put(&scene, &file, thing);
        look(thing);
        take_away(&file);
    }
    assert!(refused > 60, "only {refused} were noticed");
    put(&scene, &file, "directory");
    abandon(&scene.path("layers"), "run", || Ok(())).unwrap();
    assert!(!scene.path("layers/run").exists());
}

/// A commit that died after its decision, or after it was applied to all but a file that another process touched.
fn interrupted(done: bool) -> Scene {
    let (scene, mut layer) = scene();
    let (journal, applied) = (scene.path("layers/run/journal"), scene.ws().join("new"));
    let (touched, has_touched) = (scene.ws().join("a"), AtomicBool::new(!done));
    let marked = scene.path("layers/run/journal.done");
    let died = AtomicBool::new(false);
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        if journal.exists() && !has_touched.swap(true, Ordering::SeqCst) {
            fs::write(&touched, "old a").unwrap();
        }
        let is_time = if done { marked.exists() } else { journal.exists() && applied.exists() };
        if is_time && !died.swap(true, Ordering::SeqCst) {
            std::panic::resume_unwind(Box::new("crash"));
        }
    })));
    let workspace = scene.workspace();
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
    drop(layer);
    scene
}

/// Calls what a command may call on the layer. Returns whether anything but a refusal came of it.
fn go_on(scene: &Scene, what: &str, back: bool) -> bool {
    let workspace: Workspace = scene.workspace();
    stage(&scene.path("layers"), "run").unwrap();
    let ended = if back {
        roll_back(&scene.path("layers"), "run", &workspace).map(|_| ())
    } else {
        recover(&scene.path("layers"), "run", &workspace).map(|_| ())
    };
    match ended {
        Ok(()) => true,
        Err(RecoverError::Io { source, .. }) => {
            assert!(!source.path.0.is_empty() || source.doing == "look at", "{what}: {source}");
            false
        }
        Err(error) => {
            assert!(error.to_string().contains("run"), "{what}: {error}");
            false
        }
    }
}

/// Tries each form of a file, in a new scene after each that was acted upon.
fn each_form(file: &str, done: bool, back: bool, is_whole: impl Fn(&[u8]) -> bool) -> usize {
    let mut scene = interrupted(done);
    let mut acted = 0;
    let forms = damaged(&fs::read(scene.path("layers/run").join(file)).unwrap());
    for (what, bytes) in forms {
        let (path, before) = (scene.path("layers/run").join(file), snapshot(&scene.ws(), true));
        let text = fs::read(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        let what = format!("{file}, {what}, back: {back}");
        let is_whole = is_whole(&bytes);
        if go_on(&scene, &what, back) || is_whole {
            // A whole outcome that says something else is believed about what may go, but never about other files.
            if done && is_whole {
                nothing_else_is_touched(&scene, &what);
            } else {
                nothing_is_lost(&scene, &what);
            }
            acted += 1;
            scene = interrupted(done);
            continue;
        }
        nothing_is_lost(&scene, &what);
        assert_eq!(snapshot(&scene.ws(), true), before, "{what}");
        fs::write(&path, text).unwrap();
    }
    for thing in THINGS {
        let (path, before) = (scene.path("layers/run").join(file), snapshot(&scene.ws(), true));
        put(&scene, &path, thing);
        assert!(!go_on(&scene, thing, back), "{file}: a {thing} was obeyed");
        assert_eq!(snapshot(&scene.ws(), true), before, "{thing}");
        take_away(&path);
    }
    acted
}

#[test]
fn a_damaged_journal_is_obeyed_only_where_no_version_goes() {
    let is_whole = |bytes: &[u8]| matches!(Journal::read_from(bytes), Ok(FoundJournal::Known(_)));
    for back in [false, true] {
        let acted = each_form("journal", false, back, is_whole);
        assert!(acted > 5, "{acted}");
    }
}

#[test]
fn a_damaged_outcome_or_none_loses_no_version() {
    let is_whole = |bytes: &[u8]| serde_json::from_slice::<Outcome>(bytes).is_ok();
    let acted = each_form("outcome", true, false, is_whole);
    assert!(acted > 5, "{acted}");
    let scene = interrupted(true);
    fs::remove_file(scene.path("layers/run/outcome")).unwrap();
    assert!(!go_on(&scene, "no outcome", false));
    nothing_is_lost(&scene, "no outcome");
}

#[test]
fn a_damaged_list_of_own_stamps_loses_no_version() {
    let mut scene = interrupted(false);
    roll_back(&scene.path("layers"), "run", &scene.workspace()).unwrap();
    let file = scene.path("layers/run/ours.json");
    let mut refused = 0;
    let forms = damaged(&fs::read(&file).unwrap());
    for (what, bytes) in forms {
        let file = scene.path("layers/run/ours.json");
        let text = fs::read(&file).unwrap();
        fs::write(&file, bytes).unwrap();
        let origin = LayerOrigin::guessed(LayerMode::Root, FsTime { sec: i64::MAX, nsec: 0 });
        match Layer::adopt(&scene.path("layers"), "run", &origin) {
            Ok(layer) => {
                layer.commit(&scene.workspace(), &Rules::default()).unwrap();
                drop(layer);
                nothing_is_lost(&scene, &what);
                scene = interrupted(false);
                roll_back(&scene.path("layers"), "run", &scene.workspace()).unwrap();
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("run"), "{what}: {error}");
                nothing_is_lost(&scene, &what);
                fs::write(&file, text).unwrap();
            }
        }
    }
    for thing in THINGS {
        let file = scene.path("layers/run/ours.json");
        put(&scene, &file, thing);
        let origin = LayerOrigin::guessed(LayerMode::Root, FsTime::default());
        assert!(Layer::adopt(&scene.path("layers"), "run", &origin).is_err(), "a {thing} was read");
        nothing_is_lost(&scene, thing);
        take_away(&file);
    }
    assert!(refused > 60, "{refused}");
}

/// The list of more than 16 changes is read from the journal again, which fails here: another process emptied the file.
#[test]
fn a_journal_that_cannot_be_read_again_decides_nothing() {
    let name = |number: u32| format!("n{number}");
    let base: Vec<Op> = (0..400).map(|number| write(&name(number), "old")).chain([write("gone", "old")]).collect();
    let scene = Scene::new(LayerMode::Root, &base);
    let changes: Vec<Op> = (0..400).map(|number| write(&name(number), "new")).chain([Op::Remove(b("gone"))]).collect();
    let mut layer = scene.layer(&changes);
    let (before, fresh, emptied) =
        (scene.found(), scene.path("layers/run/journal.new"), Arc::new(AtomicBool::new(false)));
    let done = emptied.clone();
    layer.set_faults(Faults::default().between(Arc::new(move |_| {
        // The steps are longer than the buffer, so that the header is in the file by now.
        if fs::metadata(&fresh).is_ok_and(|file| file.len() > 0) && !done.swap(true, Ordering::SeqCst) {
            fs::File::options().write(true).open(&fresh).unwrap().set_len(0).unwrap();
        }
    })));
    let error = layer.commit(&scene.workspace(), &Rules::default()).unwrap_err();
    assert!(emptied.load(Ordering::SeqCst));
    assert!(matches!(error, CommitError::Prepare { .. }), "{error}");
    assert!(!scene.path("layers/run/journal").exists(), "it says that nothing was decided");
    assert_eq!(scene.found(), before);
    layer.set_faults(Faults::default());
    layer.commit(&scene.workspace(), &Rules::default()).unwrap();
    assert_eq!(scene.found(), scene.wanted());
}
