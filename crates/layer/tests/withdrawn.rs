//! A half-applied commit that is taken back while programs go on to write to what had arrived: nothing of that is removed.

#![allow(clippy::unwrap_used, reason = "this is a test")]

mod common;

use common::{Op, Scene, b, leased, write};
use nexus_layer::commit::roll_back::roll_back_with;
use nexus_layer::{
    Abandoned, Conflict, Faults, Layer, LayerMode, LayerOrigin, Rules, Workspace, abandon, clear_staging, roll_back,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Lets a commit die before its first call for which `when` holds.
fn killed(scene: &Scene, mut layer: Layer, flags: bool, when: impl Fn() -> bool + Send + Sync + 'static) {
    let once = Mutex::new(Some(()));
    let mut faults = Faults::default().between(Arc::new(move |_| {
        if when() && once.lock().unwrap().take().is_some() {
            std::panic::panic_any("crash");
        }
    }));
    if !flags {
        faults = faults.without_rename_flags();
    }
    layer.set_faults(faults);
    let workspace = leased(scene);
    assert!(catch_unwind(AssertUnwindSafe(|| layer.commit(&workspace, &Rules::default()))).is_err());
}

/// A commit that died when the directory `src` had arrived, in the place of a file or at a free name.
fn with_a_directory(mode: LayerMode, over_file: bool, flags: bool) -> Scene {
    let mut base = vec![write("z", "old z"), write("low", "low")];
    let mut run = vec![write("z", "run z")];
    if over_file {
        base.push(write("src", "it was a file"));
        run.push(Op::Remove(b("src")));
    }
    run.extend([Op::Mkdir(b("src")), write("src/main.c", "generated\n"), Op::Mkdir(b("src/in"))]);
    // A file of the workspace carries a mark of overlay, which the commit takes off.
    run.extend([write("src/in/a", "a\n"), Op::Link(b("src/in/a"), b("src/b")), Op::Rename(b("low"), b("src/low"))]);
    let scene = Scene::new(mode, &base);
    let layer = scene.layer(&run);
    fs::write(scene.path("origin"), serde_json::to_vec(&layer.origin()).unwrap()).unwrap();
    let (arrived, journal) = (scene.ws().join("src/main.c"), scene.path("layers/run/journal"));
    killed(&scene, layer, flags, move || journal.exists() && arrived.exists());
    scene
}

fn taken_back(scene: &Scene) -> Vec<Conflict> {
    roll_back(&scene.path("layers"), "run", &leased(scene)).unwrap()
}

/// Everything below a directory, by path.
fn all(root: &Path) -> BTreeMap<PathBuf, Option<String>> {
    let mut found = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(path) = stack.pop() {
        if path.is_dir() {
            stack.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).ok());
    }
    found
}

/// Kills a roll-back before its first call for which `when` holds.
fn roll_back_between(scene: &Scene, layers: &Path, flags: bool, when: impl Fn() -> bool + Send + Sync + 'static) {
    let once = Mutex::new(Some(()));
    let mut faults = Faults::default().between(Arc::new(move |_| {
        if when() && once.lock().unwrap().take().is_some() {
            std::panic::panic_any("crash");
        }
    }));
    if !flags {
        faults = faults.without_rename_flags();
    }
    let back = || roll_back_with(layers, "run", &leased(scene), &faults);
    assert!(catch_unwind(AssertUnwindSafe(back)).is_err(), "it was not killed");
}

/// Saves a file in a directory, wherever that is by now.
fn save(dir: &fs::File, name: &str) {
    fs::write(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()), "an hour of work").unwrap();
}

fn aside(end: Abandoned) -> PathBuf {
    let Abandoned::Removed(Some(left)) = end else { panic!("nothing was set aside: {end:?}") };
    assert!(left.why.contains("a program may still have been writing"), "{left}");
    left.at.as_path().to_owned()
}

#[test]
fn a_directory_that_was_withdrawn_is_kept_for_its_writers() {
    for (over_file, flags) in [(false, true), (true, true), (false, false)] {
        for is_killed in [false, true] {
            let scene = with_a_directory(LayerMode::Root, over_file, flags);
            let (layers, layer, src) = (scene.path("layers"), scene.path("layers/run"), scene.ws().join("src"));
            let (dir, inner) = (fs::File::open(&src).unwrap(), fs::File::open(src.join("in")).unwrap());
            if is_killed {
                let withdrawn = layer.join("upper/src/main.c");
                roll_back_between(&scene, &layers, flags, move || withdrawn.exists() && !src.join("main.c").exists());
                save(&dir, "after the kill");
            }
            taken_back(&scene);
            assert!(!layer.join("journal").exists());
            save(&dir, "notes");
            if is_killed {
                // What was saved between the two brings the directory home, or beside its path.
                abandon(&layers, "run", || Ok(())).unwrap();
                save(&inner, "late");
                let there = format!("/proc/self/fd/{}", dir.as_raw_fd());
                let place = fs::read_link(&there).unwrap();
                assert!(place.starts_with(scene.ws()) && place.is_dir(), "{over_file} {flags}: {}", place.display());
                for name in ["after the kill", "notes", "in/late"] {
                    assert_eq!(fs::read_to_string(place.join(name)).unwrap(), "an hour of work", "{name}");
                }
                continue;
            }
            assert!(layer.join("withdrawn").exists());
            let place = aside(abandon(&layers, "run", || Ok(())).unwrap());
            save(&inner, "late");
            assert!(!layer.exists() && place.starts_with(layers.join(".kept/run")), "{}", place.display());
            for name in ["notes", "in/late"] {
                let text = fs::read_to_string(place.join("upper/src").join(name)).unwrap();
                assert_eq!(text, "an hour of work", "{over_file} {flags} {name}");
            }
            assert_eq!(abandon(&layers, "run", || Ok(())).unwrap(), Abandoned::Nothing);
        }
    }
}

#[test]
fn a_withdrawn_file_goes_unless_a_process_may_write_to_it() {
    for (is_open, has_leases) in [(false, true), (true, true), (false, false)] {
        let scene = Scene::new(LayerMode::Root, &[write("a", "old a"), write("z", "old z")]);
        let layer = scene.layer(&[write("a", "run a"), write("z", "run z")]);
        let (layers, journal, at) = (scene.path("layers"), scene.path("layers/run/journal"), scene.ws().join("a"));
        killed(&scene, layer, true, move || {
            journal.exists() && fs::read_to_string(&at).is_ok_and(|now| now == "run a")
        });
        let workspace = if has_leases { leased(&scene) } else { Workspace::open(&scene.ws()).unwrap() };
        let upper = scene.path("layers/run/upper/a");
        let opened = Arc::new(Mutex::new(None));
        let (keep, there) = (opened.clone(), scene.ws().join("a"));
        // As if it had been open in the moment of the move: after the last look at it.
        let faults = Faults::default().between(Arc::new(move |_| {
            let is_back = fs::read_to_string(&there).is_ok_and(|now| now == "old a");
            if is_open && is_back && keep.lock().unwrap().is_none() {
                *keep.lock().unwrap() = fs::OpenOptions::new().append(true).open(&upper).ok();
            }
        }));
        let unwithdrawn = roll_back_with(&layers, "run", &workspace, &faults).unwrap();
        let end = abandon(&layers, "run", || Ok(())).unwrap();
        let stays = scene.ws().join("a");
        let what = format!("{is_open} {has_leases}: {unwithdrawn:?}");
        if is_open {
            writeln!(opened.lock().unwrap().as_mut().unwrap(), " and work").unwrap();
            let beneath = all(&scene.path("."));
            assert!(beneath.values().flatten().any(|text| text == "run a and work\n"), "{what}");
        } else {
            assert_eq!(fs::read_to_string(stays).unwrap(), "old a", "{what}");
            assert_eq!(matches!(end, Abandoned::Removed(None)), has_leases, "{what}");
        }
    }
}

/// The layer is on another file system, so that what was withdrawn lies in the workspace.
#[test]
fn a_staging_directory_that_is_written_to_is_kept() {
    let scene = Scene::new(LayerMode::Root, &[write("z", "old z")]);
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let layer = Layer::create(other.path(), "run", &scene.workspace(), LayerMode::Root).unwrap();
    fs::create_dir(layer.upper().join("src")).unwrap();
    fs::write(layer.upper().join("src/main.c"), "generated").unwrap();
    fs::write(layer.upper().join("z"), "run z").unwrap();
    let (journal, src) = (other.path().join("run/journal"), scene.ws().join("src"));
    let (arrived, decided) = (src.join("main.c"), journal.clone());
    killed(&scene, layer, true, move || decided.exists() && arrived.exists());
    let dir = Arc::new(fs::File::open(&src).unwrap());
    // The last step before the staging directory goes: its entries were looked at.
    let (writer, staging) = (dir.clone(), scene.ws().join(".nexus-tmp-run"));
    let looked_at = other.path().join("run/ours.json");
    let faults = Faults::default().between(Arc::new(move |_| {
        if looked_at.exists() && staging.exists() {
            save(&writer, "notes");
        }
    }));
    let conflicts = roll_back_with(other.path(), "run", &leased(&scene), &faults).unwrap();
    let kept = scene.ws().join(".nexus-kept-run");
    assert!(all(&kept).values().flatten().any(|text| text == "an hour of work"), "{conflicts:?}");
    let named = conflicts.iter().find(|one| one.path.as_path() == Path::new(".nexus-kept-run"));
    assert!(named.is_some_and(|one| one.detail.as_ref().unwrap().contains("a program may")), "{conflicts:?}");
    // No later command touches it, and a reject names it.
    let named = clear_staging(other.path(), "run", &leased(&scene)).unwrap();
    assert!(named.iter().any(|one| one.at.as_path() == kept), "{named:?}");
    abandon(other.path(), "run", || Ok(())).unwrap();
    save(&dir, "more");
    assert!(kept.exists());
}

#[test]
fn a_withdrawn_layer_that_arrived_in_full_afterwards_goes() {
    for has_more in [false, true] {
        let scene = with_a_directory(LayerMode::Root, false, true);
        let layers = scene.path("layers");
        taken_back(&scene);
        assert!(layers.join("run/withdrawn").exists());
        let origin: LayerOrigin = serde_json::from_slice(&fs::read(scene.path("origin")).unwrap()).unwrap();
        let mut layer = Layer::adopt(&layers, "run", &origin).unwrap();
        layer.set_unreached();
        let (done, late) = (layers.join("run/journal.done"), layers.join("run/upper/late"));
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            if has_more && done.exists() && late.parent().unwrap().exists() {
                fs::write(&late, "an hour of work").ok();
            }
        })));
        let result = layer.commit(&leased(&scene), &Rules::default()).unwrap();
        assert_eq!((result.conflicts, result.parked), (vec![], vec![]));
        assert_eq!(scene.found(), scene.wanted());
        assert!(!layers.join("run").exists());
        assert_eq!(result.left.is_empty(), !has_more, "{:?}", result.left);
        let is_kept = all(&layers).values().flatten().any(|text| text == "an hour of work");
        assert_eq!((is_kept, layers.join(".kept").exists()), (has_more, has_more));
    }
}

/// A program saves in a directory of the layer before any call of an accept of a part.
#[test]
fn what_is_saved_while_a_part_of_what_left_arrives_stays() {
    for nth in 1.. {
        let scene = with_a_directory(LayerMode::Root, false, true);
        let (layers, src) = (scene.path("layers"), scene.ws().join("src"));
        let (dir, inner) = (fs::File::open(&src).unwrap(), fs::File::open(src.join("in")).unwrap());
        taken_back(&scene);
        let origin: LayerOrigin = serde_json::from_slice(&fs::read(scene.path("origin")).unwrap()).unwrap();
        let mut layer = Layer::adopt(&layers, "run", &origin).unwrap();
        layer.set_unreached();
        let (journal, calls) = ([layers.join("run/journal"), layers.join("run/journal.done")], AtomicU64::new(0));
        let saved = Arc::new(AtomicU8::new(0));
        let done = Arc::clone(&saved);
        layer.set_faults(Faults::default().between(Arc::new(move |_| {
            let is_decided = journal.iter().any(|file| file.exists());
            if is_decided && calls.fetch_add(1, Ordering::SeqCst) + 1 == nth {
                // One of them may be removed by now, and then nothing is saved in it.
                for (number, one) in [&dir, &inner].into_iter().enumerate() {
                    let at = format!("/proc/self/fd/{}/late", one.as_raw_fd());
                    let is_saved = fs::write(at, format!("an hour of work {number}")).is_ok();
                    done.fetch_or(u8::from(is_saved) << number, Ordering::SeqCst);
                }
            }
        })));
        let rules = Rules { only: Some(vec![b("src/main.c").into(), b("src/in").into()]), ..Rules::default() };
        let result = layer.commit(&leased(&scene), &rules).unwrap();
        drop(layer);
        let found = all(scene.dir.path());
        let saved = saved.load(Ordering::SeqCst);
        for number in (0..2).filter(|number| saved & 1 << number != 0) {
            let is_there = found.values().flatten().any(|text| *text == format!("an hour of work {number}"));
            assert!(is_there, "{number} before call {nth}: {result:?} {found:?}");
        }
        if saved == 0 {
            assert!(nth > 20, "only {nth} calls");
            return;
        }
    }
}
